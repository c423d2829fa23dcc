"""A solution whose verdict is known beforehand, and the folder of them.

A sample says in its docstring what it does, and below that in `key: value` lines what a judge must say of it. It is
parsed and never imported.
"""

import ast
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from kernelyard.core.errors import UsageError, unknown
from kernelyard.core.policy import Policy
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Decision, Status
from kernelyard.suites.kernelbench import parsed, read_solution

DEFAULT_PROBLEM = "softmax"
_LINE = re.compile(r"^([a-z]+): (.+)$", re.MULTILINE)


class Kind(str, Enum):
    """What a sample tries to fool."""

    REPLAY = "replay"
    CLOCK = "clock"
    CHECK = "check"
    PRECISION = "precision"
    CRASH = "crash"
    ABUSE = "abuse"
    HONEST = "honest"


_LINES = {
    *("expect", "class", "catalogue", "device", "problem", "needs"),
    *("policy", "speed", "slow", "open"),
}
_UNKNOWN = Decision.INCONCLUSIVE.value
_STATUSES, _KINDS, _POLICIES = ([member.value for member in kind] for kind in (Status, Kind, Policy))


@dataclass(frozen=True)
class Sample:
    """One file of the suite. The fields below `what` are its `key: value` lines."""

    source: Source
    problem: Path
    what: str
    """One line."""
    expect: tuple[Status, ...]
    """Every status that a judge may give it; for a cheat, none of these is a success."""
    inconclusive: bool
    """Whether it may pass too, where the decision is that its time is not known; the word among those of `expect`."""
    kind: Kind
    catalogue: str = ""
    """The letter and number of the cheat in the catalogue; empty for honest ones."""
    device: str = "any"
    """`any`, `cpu` or `cuda`: where it makes sense."""
    needs: tuple[str, ...] = ()
    """Programs without which it cannot do what it is for."""
    policy: Policy = Policy.EXPLORE
    """Under which it is judged: the most lenient that must still stop a cheat; for an honest one that of everyday, or
    `strict` where it has a kernel of its own, which is what that asks for."""
    same_speed: bool = False
    """Line `speed: same`: it does exactly the baseline's work, so that neither `faster` nor `slower` is true. A speedup
    that the decision calls unknown is none."""
    is_faster: bool = False
    """Line `speed: faster`: it does the baseline's work in clearly less time, and a judge that does not know it is
    wrong."""
    slow: bool = False
    """Over ten seconds."""
    open: str = ""
    """Why today's judge lets it through, where it does."""

    @property
    def name(self) -> str:
        return self.source.path.stem

    def runs_on(self, device_type: str) -> bool:
        return self.device in ("any", device_type) and all(shutil.which(program) for program in self.needs)


def read_sample(path: Path) -> Sample:
    """The sample in `path`. Raises UsageError where its docstring does not say what is needed."""
    source = read_solution(path)
    text = ast.get_docstring(parsed(path, source.text)) or ""
    lines = dict(_LINE.findall(text))
    missing = {"expect", "class"} - lines.keys()
    if missing:
        raise UsageError(f"{path}: its docstring has no line {' and no line '.join(sorted(missing))}; expected both")
    if strange := lines.keys() - _LINES:
        raise unknown(f"line in {path}", min(strange), _LINES)
    words = lines["expect"].split("|")
    folder = path.parent / "problems" if (path.parent / "problems").is_dir() else path.parent.parent / "problems"
    kind = Kind(_one_of("class", lines["class"], _KINDS, path))
    speed = _one_of("speed", lines.get("speed", ""), ("", "same", "faster"), path)
    usual = Policy.TRAINING if kind is Kind.HONEST else Policy.EXPLORE
    return Sample(
        source=source,
        problem=folder / f"{lines.get('problem', DEFAULT_PROBLEM)}.py",
        what=" ".join(text.partition("\n\n")[0].split()),
        expect=tuple(Status(_one_of("status", word, _STATUSES, path)) for word in words if word != _UNKNOWN),
        inconclusive=_UNKNOWN in words,
        kind=kind,
        catalogue=lines.get("catalogue", ""),
        device=_one_of("device", lines.get("device", "any"), ("any", "cpu", "cuda"), path),
        needs=tuple(lines.get("needs", "").split()),
        policy=Policy(_one_of("policy", lines.get("policy", usual.value), _POLICIES, path)),
        same_speed=speed == "same",
        is_faster=speed == "faster",
        slow=_one_of("slow", lines.get("slow", "no"), ("yes", "no"), path) == "yes",
        open=lines.get("open", ""),
    )


def read_samples(folder: Path, only: Sequence[str] = ()) -> list[Sample]:
    """Every sample of a folder and of its folder `honest`, or `only` those, by name and each once.

    Raises UsageError for a folder without any, and for a name that is none's.
    """
    paths = [*folder.glob("*.py"), *(folder / "honest").glob("*.py")]
    if not paths:
        raise UsageError(f"{folder}: no samples; expected a folder like tests/exploits of a checkout")
    by_name = {path.stem: path for path in paths}
    if strange := set(only) - by_name.keys():
        raise unknown("sample", min(strange), by_name)
    return [read_sample(by_name[name]) for name in sorted(set(only) or by_name)]


def control_of(samples: Sequence[Sample]) -> Sample:
    """The honest sample that is judged again after hostile ones: the one named `control`, else the first honest."""
    honest = sorted((s for s in samples if s.kind is Kind.HONEST), key=lambda s: (s.name != "control", s.name))
    if not honest:
        raise UsageError("no honest sample; expected one at least, to see whether hostile ones touch its verdict")
    return honest[0]


def _one_of(key: str, word: str, known: Sequence[str], path: Path) -> str:
    if word not in known:
        raise unknown(f"{key} in {path}", word, [name for name in known if name])
    return word
