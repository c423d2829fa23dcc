"""What a ladder's table is made of."""

from pydantic import model_validator

from kernelyard.core.environment import Environment
from kernelyard.core.verdict import ErrorFigures, Floor, Record, Timing


class LadderRow(Record):
    """One backend on the ladder's workload. Null means not measured."""

    backend: str
    status: str
    """`passed`, a failure's status, or `refused` where the backend does not take this input on this device."""
    message: str = ""
    time: Timing | None = None
    gbps: float | None = None
    """Least bytes over the median time, in 1e9 bytes a second."""
    percent_of_floor: float | None = None
    kernels: int | None = None
    """GPU kernels launched by one call; null on a CPU."""
    peak_bytes: int | None = None
    """Memory that one call takes beyond its inputs, its output included."""
    error: ErrorFigures | None = None
    compile_seconds: float | None = None
    """Wall time of the first call less a later one."""
    lines_of_code: int

    @model_validator(mode="after")
    def _no_time_without_proof(self) -> "LadderRow":
        if self.status != "passed" and self.time is not None:
            raise ValueError("a row that did not pass has no time")
        return self


class Ladder(Record):
    """One operator on one workload, climbed."""

    operator: str
    workload: str
    mode: str
    floor: Floor
    rows: tuple[LadderRow, ...]
    environment: Environment

    @property
    def fastest(self) -> LadderRow | None:
        timed = [row for row in self.rows if row.time is not None]
        return min(timed, key=lambda row: row.time.p50_ms if row.time else float("inf")) if timed else None
