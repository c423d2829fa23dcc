"""What a suite's problems cost at the least, each counted without running it."""

from collections.abc import Iterator
from typing import Literal

from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Record
from kernelyard.core.workload import DTYPES
from kernelyard.judge.counting import Count, Uncountable, count
from kernelyard.judge.floor import Ceilings, floor
from kernelyard.suites.degenerate import degenerate, is_admitted
from kernelyard.suites.huggingface import described
from kernelyard.suites.suite import Entry, Suite


class Listed(Record):
    """One problem of a suite. Null is not counted; `reason` says why."""

    level: int
    number: int
    name: str
    problem_sha256: str
    dtype: str
    parameters: int | None = None
    bytes: int | None = None
    operations: int | None = None
    """Floating-point operations of matrix products and convolutions."""
    bound: Literal["memory", "compute"] | None = None
    floor_ms: float | None = None
    at_least: bool = False
    """The forward pass looks at values: inputs and weights are counted, answers and operations are not."""
    reason: str = ""
    degenerate: str | None = None
    """How admission found that it cannot tell a right answer from a wrong one."""
    admitted: bool = False
    """Whether admission decided on it in this dtype, one way or the other."""


def listed(suite: Suite, dtype: str, ceilings: Ceilings) -> Iterator[Listed]:
    """Every problem, in the suite's order."""
    for entry in suite.entries:
        least, reason = None, ""
        with described(entry.source.text):
            try:
                least = count(entry.load(), DTYPES[dtype])
            except UsageError as error:
                reason = str(error).removeprefix(f"{entry.source.path}: ")
            except Uncountable as error:
                least, reason = error.least, str(error)
        yield _record(entry, dtype, ceilings, least, reason)


def _record(entry: Entry, dtype: str, ceilings: Ceilings, least: Count | None, reason: str) -> Listed:
    record = Listed(
        level=entry.level,
        number=entry.number,
        name=entry.name,
        problem_sha256=entry.source.sha256,
        dtype=dtype,
        reason=reason,
        degenerate=degenerate(entry.source.sha256, dtype),
        admitted=is_admitted(entry.source.sha256, dtype),
    )
    if least is None:
        return record
    bounds = floor(least.cost, ceilings)
    counted = {
        "parameters": least.parameters,
        "bytes": bounds.bytes,
        "operations": None if reason else bounds.operations,
        "bound": None if reason else bounds.bound,
        "floor_ms": bounds.floor_ms,
        "at_least": bool(reason),
    }
    return record.model_copy(update=counted)
