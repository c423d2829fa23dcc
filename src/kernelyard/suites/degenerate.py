"""Problems that cannot tell a right answer from a wrong one, as `kernelyard problem check --mark` found them.

They stand in `kernelbench_admission.json` beside this file, by the hash of a problem's text and the dtype. Runs and
analyses read it and count such problems apart.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kernelyard.core.verdict import Record
from kernelyard.core.whole_file import write_whole
from kernelyard.judge.admission import Admission
from kernelyard.suites.selection import KERNELBENCH
from kernelyard.suites.suite import Suite

TABLE = Path(__file__).with_name("kernelbench_admission.json")


class Mark(Record):
    """One problem's entry."""

    problem: str
    reasons: dict[str, str]
    """By dtype, torch's name."""


def degenerate(sha256: str, dtype: str | None = None) -> str | None:
    """What is wrong with the problem of that text in `dtype`, or in any; None for one that is sound or was never looked
    at."""
    mark = _marks(TABLE).get(sha256)
    if mark is None:
        return None
    return mark.reasons.get(dtype) if dtype else next(iter(mark.reasons.values()))


def not_admitted(suite: Suite, dtypes: Iterable[str]) -> str:
    """Says in which of `dtypes` KernelBench went through no admission: no mark means nothing there. Empty elsewhere.

    Marks are all that the table keeps, and in a dtype that was looked at there are some.
    """
    looked_at = {name for mark in _marks(TABLE).values() for name in mark.reasons}
    unseen = sorted(set(dtypes) - looked_at) if suite.name == KERNELBENCH else []
    return f"not admitted in {' and '.join(unseen)}" if unseen else ""


def enter(records: Iterable[Admission]) -> None:
    """Enter what admission found: an invalid problem with its reason, a valid one by taking its entry away.

    What was skipped or not loaded leaves the table as it is.
    """
    marks = dict(_marks(TABLE))
    for record in records:
        before = marks.pop(record.problem_sha256, None)
        reasons = dict(before.reasons) if before else {}
        if record.status == "invalid_problem":
            reasons[record.dtype] = record.reason
        elif record.status == "valid":
            reasons.pop(record.dtype, None)
        if reasons:
            marks[record.problem_sha256] = Mark(problem=record.problem, reasons=reasons)
    ordered = sorted(marks.items(), key=lambda item: (item[1].problem, item[0]))
    write_whole(TABLE, json.dumps({sha256: mark.model_dump() for sha256, mark in ordered}, indent=1) + "\n")
    _marks.cache_clear()


@cache
def _marks(table: Path) -> dict[str, Mark]:
    return {sha256: Mark.model_validate(mark) for sha256, mark in json.loads(table.read_text()).items()}
