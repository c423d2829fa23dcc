"""Runs with round numbers that a test can reason about: verdicts, baselines and the folder of both."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verdicts import ENVIRONMENT, SETTINGS, suite

from kernelyard.campaign.baselines import Baseline, BaselineFolder, Variant
from kernelyard.campaign.ledger import Ledger
from kernelyard.campaign.records import Judged, Key
from kernelyard.core.problem import Source
from kernelyard.core.verdict import (
    RELAY,
    ErrorFigures,
    Floor,
    HandOver,
    Phase,
    SandboxRecord,
    Status,
    Timing,
    Verdict,
)
from kernelyard.judge.decision import decide
from kernelyard.judge.statistics import Ratio
from kernelyard.suites.suite import Entry, Suite

ERROR = ErrorFigures(
    output="output", max_abs=1e-6, honest_max_abs=1e-6, rms=1e-7, honest_rms=1e-7, max_rel=1e-6, honest_max_rel=1e-6,
    over_honest=1.0, allowed=8.0, mismatched=0, elements=10,
)  # fmt: skip
FLOOR = Floor(
    bytes=10**9, operations=10**9, bound="memory", floor_ms=0.1, copy_gbps=2500.0, tflops=None, datasheet_gbps=3350.0,
    impossible_ms=0.01,
)  # fmt: skip


def name_of(problem: int) -> str:
    return f"{problem}_Made_Up.py"


def timing(milliseconds: float) -> Timing:
    return Timing(
        samples_ms=tuple(milliseconds * (1 + place / 1000) for place in range(-7, 8)), timer="cuda_event", cache="cold"
    )


def judged(
    number: int,
    speedup: float | None = None,
    *,
    half: float = 0.01,
    sample: int = 0,
    level: int = 1,
    status: Status | None = None,
    phase: Phase | None = None,
    **changes: Any,
) -> Judged:
    """A pass of that speedup, its interval `half` wide on a logarithmic scale; or how else it ended."""
    status = status or (Status.PASSED if speedup else Status.INCORRECT_VALUE)
    key = Key(level, number, sample)
    fields: dict[str, Any] = {
        "status": status,
        "phase": phase if phase or status is Status.PASSED else Phase.CHECK,
        "problem": name_of(number),
        "problem_sha256": f"problem {level} {number}",
        "solution": f"{key}_kernel.py",
        "solution_sha256": "b" * 64,
        "dtype": "float32",
        "sandbox": SandboxRecord(kind="bubblewrap"),
        "environment": ENVIRONMENT,
    }
    if status is Status.PASSED:
        fields |= {"trials": 5, "errors": (ERROR,), "timed_outputs_checked": 3, "weights": "state_dict"}
    if speedup:
        ratio = Ratio(speedup, speedup * math.exp(-half), speedup * math.exp(half))
        fields |= {
            "baseline": timing(1.0), "time": timing(1.0 / speedup), "speedup": ratio.mean, "speedup_low": ratio.low,
            "speedup_high": ratio.high, "rounds": 8, "noise": 0.004,
            "decision": decide(ratio, 0.004, confirmed=True), "floor": FLOOR, "percent_of_floor": 10.0 * speedup,
        }  # fmt: skip
    if "told" in changes:
        shown = fields["time"].model_copy(update={"timer": RELAY})
        fields |= {"time": shown, "handed_over": HandOver(saved_ms=(0.1,))}
    return Judged(
        level=level, problem=number, sample=sample, problem_name=name_of(number),
        verdict=Verdict(**{**fields, **changes}), began="2026-11-21T00:00:00+00:00", seconds={"judge": 1.0},
    )  # fmt: skip


def baseline(problem: int, compiled: float | None, *, level: int = 1, **changes: Any) -> Baseline:
    """Eager takes 1 ms; torch.compile that many, or fails."""
    fields: dict[str, Any] = {
        "level": level,
        "problem": problem,
        "problem_name": name_of(problem),
        "problem_sha256": f"problem {level} {problem}",
        "dtype": "float32",
        "times": {Variant.EAGER: timing(1.0)} | ({Variant.COMPILE: timing(compiled)} if compiled else {}),
        "failures": {} if compiled else {Variant.COMPILE: "BackendCompilerFailed: made up"},
        "environment": ENVIRONMENT,
        "seconds": 1.0,
    }
    return Baseline.model_validate({**fields, **changes})


def baselines(folder: Path, entries: Iterable[Baseline]) -> Path:
    """A folder as `kernelyard baseline` leaves it."""
    kept = BaselineFolder(folder, [])
    for entry in entries:
        kept.add(entry)
    kept.write_kernelbench()
    return folder


def run_folder(folder: Path, verdicts: Iterable[Judged]) -> Path:
    """A folder as `kernelyard run` leaves it, but for the solutions."""
    folder.mkdir(parents=True, exist_ok=True)
    with Ledger(folder, create=True) as ledger:
        ledger.begin(suite(), SETTINGS, ENVIRONMENT)
        for verdict in verdicts:
            ledger.finish(verdict)
    return folder


def suite_of(*problems: int, level: int = 1) -> Suite:
    """Problems whose texts are those that `judged` and `baseline` speak of, by a hash that says so."""
    return Suite("made up", tuple(_entry(level, problem) for problem in problems))


class _Text(Source):
    @property
    def sha256(self) -> str:
        return self.text


def _entry(level: int, problem: int) -> Entry:
    source = _Text(Path(name_of(problem)), f"problem {level} {problem}")
    return Entry(level, problem, name_of(problem), source, lambda: None)  # type: ignore[arg-type, return-value]
