"""References judged against themselves: each has to pass and to be a tie, or its problem has a defect."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelyard.campaign.records import Judged, Key
from kernelyard.core.errors import UsageError
from kernelyard.core.folders import check_folder
from kernelyard.core.problem import as_solution
from kernelyard.core.verdict import Decision, Status, Verdict
from kernelyard.core.whole_file import write_whole
from kernelyard.suites.suite import Entry, Suite


@dataclass(frozen=True)
class SelfJudged:
    """A problem, and the verdict on its own reference; None where it has none."""

    entry: Entry
    verdict: Verdict | None

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.status is Status.PASSED

    @property
    def tied(self) -> bool:
        """As it has to be."""
        return self.passed and self.verdict is not None and self.verdict.decision is Decision.TIE


def write_references(suite: Suite, folder: Path) -> list[Path]:
    """Every reference as sample 0 of its problem, by KernelBench's names; returns the paths.

    Raises UsageError, with nothing written, for a folder that holds another solution by one of these names.
    """
    check_folder(folder)
    sources = {folder / f"{Key(each.level, each.number, 0)}_kernel.py": each.source for each in suite.entries}
    texts = {path: as_solution(source) for path, source in sources.items()}
    for path, text in texts.items():
        if path.exists() and path.read_bytes() != text.encode():
            raise UsageError(f"{path} is another solution; expected a folder without, or of these references")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        write_whole(path, text)
    return list(texts)


def self_judged(suite: Suite, judged: Sequence[Judged]) -> list[SelfJudged]:
    """Every problem of the suite. Raises UsageError for a verdict on anything but the problem's own reference."""
    verdicts: dict[tuple[int, int], Verdict] = {}
    for each in judged:
        entry = suite.entry(each.level, each.problem)
        if entry is None:
            continue
        if each.verdict.solution_sha256 != hashlib.sha256(as_solution(entry.source).encode()).hexdigest():
            raise UsageError(
                f"{each.key} is not the reference of {entry.name}; expected a run on what `kernelyard problems"
                " references` wrote"
            )
        verdicts[each.level, each.problem] = each.verdict
    return [SelfJudged(entry, verdicts.get((entry.level, entry.number))) for entry in suite.entries]
