"""Rows, ladders and verdicts as a run would leave them, with round numbers that a test can reason about."""

from collections.abc import Callable
from typing import Any

import pytest

from kernelyard.core.environment import Environment
from kernelyard.core.verdict import Decision, ErrorFigures, Flag, Floor, SandboxRecord, Status, Timing, Verdict
from kernelyard.ladder.record import Ladder, LadderRow
from kernelyard.report.ledger import BenchRow, config_text

RowMaker = Callable[..., BenchRow]


@pytest.fixture
def environment() -> Environment:
    return Environment(
        device="cuda:0",
        device_name="NVIDIA H100 80GB HBM3",
        vendor="cuda",
        arch="sm_90",
        driver="580.10",
        cuda="13.0",
        torch="2.11.0+cu130",
        triton="3.6.0",
        python="3.12.1",
        kernelyard="0.1.0",
        commit="0123456789",
        date="2026-01-02T03:04:05+00:00",
    )


@pytest.fixture
def make_row(environment: Environment) -> RowMaker:
    def make(provider: str = "triton", x: int = 1024, ms: float = 0.5, **changes: Any) -> BenchRow:
        """A speed row of 1e9 bytes where a copy runs at 2500 GB/s: the floor is 0.4 ms."""
        fields: dict[str, Any] = {
            "kernel_name": "softmax",
            "kernel_provider": provider,
            "kernel_operation_mode": "forward",
            "metric_name": "speed",
            "metric_unit": "ms",
            "x_name": "N",
            "x_label": "row length",
            "x_value": x,
            "y_value_50": ms,
            "y_value_20": ms * 0.98,
            "y_value_80": ms * 1.04,
            "extra_benchmark_config_str": config_text("bfloat16"),
            "gpu_name": environment.device_name,
            "timestamp": environment.date,
            "timer": "cuda_event",
            "cache": "cold",
            "bytes": 10**9,
            "copy_gbps": 2500.0,
            "floor_ms": 0.4,
            "percent_of_floor": 100 * 0.4 / ms,
            "datasheet_gbps": 3350.0,
            "torch_version": environment.torch,
            "triton_version": environment.triton,
            "cuda_version": environment.cuda,
            "driver": environment.driver,
            "kernelyard_version": environment.kernelyard,
            "commit": environment.commit,
        }
        return BenchRow(**{**fields, **changes})

    return make


def timing(milliseconds: float) -> Timing:
    """Ten samples around a median."""
    return Timing(
        samples_ms=tuple(milliseconds * (0.95 + 0.01 * place) for place in range(11)),
        timer="cuda_event",
        cache="cold",
    )


def error(over_honest: float = 1.2) -> ErrorFigures:
    return ErrorFigures(
        output="output",
        max_abs=1.5e-3,
        honest_max_abs=1.2e-3,
        rms=2e-4,
        honest_rms=2e-4,
        max_rel=4e-3,
        honest_max_rel=4e-3,
        over_honest=over_honest,
        allowed=8.0,
        mismatched=0,
        elements=1000,
    )


FLOOR = Floor(
    bytes=10**9,
    operations=5 * 10**8,
    bound="memory",
    floor_ms=0.4,
    copy_gbps=2500.0,
    tflops=None,
    datasheet_gbps=3350.0,
    impossible_ms=0.2,
)


@pytest.fixture
def make_ladder(environment: Environment) -> Callable[..., Ladder]:
    def make(**milliseconds: float | None) -> Ladder:
        """A ladder of the named backends; None is a backend that was refused."""
        rows = [
            LadderRow(
                backend=backend,
                status="refused" if ms is None else "passed",
                message="needs a GPU" if ms is None else "",
                time=None if ms is None else timing(ms),
                gbps=None if ms is None else 1e3 / ms,
                percent_of_floor=None if ms is None else 100 * FLOOR.floor_ms / ms,
                kernels=None if ms is None else 1,
                peak_bytes=None if ms is None else 537_000_000,
                error=None if ms is None else error(),
                compile_seconds=None if ms is None else 1.84,
                lines_of_code=42,
            )
            for backend, ms in milliseconds.items()
        ]
        return Ladder(
            operator="softmax",
            workload="8192x4096 bfloat16",
            mode="forward",
            floor=FLOOR,
            rows=tuple(rows),
            environment=environment,
        )

    return make


@pytest.fixture
def make_verdict(environment: Environment) -> Callable[..., Verdict]:
    def make(status: Status = Status.PASSED, **changes: Any) -> Verdict:
        fields: dict[str, Any] = {
            "status": status,
            "problem": "softmax_problem.py",
            "problem_sha256": "a" * 64,
            "solution": "solution.py",
            "solution_sha256": "b" * 64,
            "dtype": "bfloat16",
            "trials": 5,
            "errors": (error(),),
            "sandbox": SandboxRecord(kind="bubblewrap", missing={"cgroup": "no delegation"}),
            "environment": environment,
        }
        if status is Status.PASSED:
            fields |= {
                "timed_outputs_checked": 3,
                "weights": "state_dict",
                "baseline": timing(0.8),
                "time": timing(0.5),
                "speedup": 1.6,
                "speedup_low": 1.55,
                "speedup_high": 1.65,
                "rounds": 8,
                "noise": 0.004,
                "decision": Decision.FASTER,
                "floor": FLOOR,
                "percent_of_floor": 80.0,
                "flags": (Flag(name="slow_start", evidence="first call took 3 s"),),
            }
        return Verdict(**{**fields, **changes})

    return make
