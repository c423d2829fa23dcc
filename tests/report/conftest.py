"""Rows, ladders and verdicts as a run would leave them, with round numbers that a test can reason about."""

from collections.abc import Callable
from typing import Any

import pytest

from kernelyard.core.environment import Environment
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
