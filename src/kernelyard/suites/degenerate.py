"""What admission found of problems: which cannot tell a right answer from a wrong one, and which it never decided on.

It stands in `kernelbench_admission.json` beside this file, by the hash of a problem's text and the dtype, as
`kernelyard problem check --mark` enters it. Runs and analyses read it and count what cannot tell apart.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Record
from kernelyard.core.whole_file import write_whole
from kernelyard.judge.admission import Admission
from kernelyard.suites.selection import LIBRARY
from kernelyard.suites.suite import Suite

TABLE = Path(__file__).with_name("kernelbench_admission.json")
CHECKOUT = Path(__file__).parents[3]


class Mark(Record):
    """One problem's entry."""

    problem: str
    reasons: dict[str, str]
    """By dtype, torch's name: why it cannot tell; empty where it can."""


def degenerate(sha256: str, dtype: str | None = None) -> str | None:
    """What is wrong with the problem of that text in `dtype`, or in any; None for one that is sound or was never looked
    at."""
    reasons = _reasons(sha256)
    return reasons.get(dtype) or None if dtype else next(filter(None, reasons.values()), None)


def is_admitted(sha256: str, dtype: str) -> bool:
    """Whether admission has decided on the problem of that text, one way or the other."""
    return dtype in _reasons(sha256)


def not_admitted(suite: Suite, dtypes: Iterable[str]) -> str:
    """Says on how many problems admission did not decide in `dtypes`; empty for none, and for the library's own."""
    said = []
    for dtype in sorted(dtypes) if suite.name != LIBRARY else ():
        unseen = sum(not is_admitted(entry.source.sha256, dtype) for entry in suite.entries)
        if unseen:
            said.append(f"{'' if unseen == len(suite.entries) else f'{unseen} '}not admitted in {dtype}")
    return ", ".join(said)


def demand_checkout() -> None:
    """Raises UsageError where the table is an installed package's, in which nobody would look for a change."""
    if not (CHECKOUT / ".git").exists():
        raise UsageError(f"--mark enters into a checkout's own table; expected one, and this is installed: {TABLE}")


def enter(records: Iterable[Admission]) -> None:
    """Enter what admission decided; what was skipped or not loaded leaves the table as it is."""
    marks = dict(_marks(TABLE))
    for record in records:
        if record.status not in ("valid", "invalid_problem"):
            continue
        before = marks.get(record.problem_sha256)
        reasons = (before.reasons if before else {}) | {record.dtype: record.reason}
        marks[record.problem_sha256] = Mark(problem=record.problem, reasons=reasons)
    ordered = sorted(marks.items(), key=lambda item: (item[1].problem, item[0]))
    write_whole(TABLE, json.dumps({sha256: mark.model_dump() for sha256, mark in ordered}, indent=1) + "\n")
    _marks.cache_clear()


def _reasons(sha256: str) -> dict[str, str]:
    mark = _marks(TABLE).get(sha256)
    return mark.reasons if mark else {}


@cache
def _marks(table: Path) -> dict[str, Mark]:
    return {sha256: Mark.model_validate(mark) for sha256, mark in json.loads(table.read_text()).items()}
