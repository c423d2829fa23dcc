"""Outcomes on disk, a line of JSON each: what a run that was interrupted need not judge again."""

from pathlib import Path

from pydantic import ValidationError

from kernelyard.core.environment import Environment
from kernelyard.core.errors import UsageError
from kernelyard.trials.trial import Court, Outcome


class Line(Outcome):
    """An outcome, and what the judge was when it came about."""

    judge: str


_BEGIN = f'{{"{next(iter(Line.model_fields))}":'


def signature(environment: Environment, court: Court) -> str:
    """What makes outcomes of two runs comparable: code, versions, device, sandbox and policy; not the date."""
    undated = environment.line.removesuffix(f" · {environment.date}")
    return f"{undated} · {court.sandbox.value}" + (f" · {court.policy.value}" if court.policy else "")


def read(path: Path, judge: str) -> list[Outcome]:
    """What stands in `path`, if it is there; a last line that was not written to its end is taken away.

    Raises UsageError where it holds anything else, or outcomes of another `judge`.
    """
    if not path.exists():
        return []
    text = path.read_text(errors="replace")
    whole = text[: text.rfind("\n") + 1]
    torn = text[len(whole) :]
    if torn and not torn.startswith(_BEGIN) and not _BEGIN.startswith(torn):
        raise UsageError(f"{path}: expected outcomes that `exploits --json` wrote")
    kept = []
    # Not splitlines, which ends a line where a stranger's message has another separator.
    for number, line in enumerate(whole.split("\n")[:-1], 1):
        try:
            entry = Line.model_validate_json(line)
        except ValidationError:
            raise UsageError(f"{path}, line {number}: expected an outcome that `exploits --json` wrote") from None
        if entry.judge != judge:
            raise UsageError(f"{path}: outcomes of {entry.judge}; expected {judge}")
        kept.append(Outcome(**entry.model_dump(exclude={"judge"})))
    if whole != text:
        path.write_text(whole)
    return kept


def add(path: Path, outcome: Outcome, judge: str) -> None:
    with path.open("a") as file:
        file.write(Line(**outcome.model_dump(), judge=judge).model_dump_json() + "\n")
