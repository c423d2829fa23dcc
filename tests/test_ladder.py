"""A wrong backend on the ladder: proved, named, and without a time."""

from dataclasses import replace
from typing import Any

import torch

from kernelyard import ops
from kernelyard.core.operator import Implementation, Operator
from kernelyard.core.verdict import Floor
from kernelyard.core.workload import Mode
from kernelyard.judge.prepare import prepare
from kernelyard.ladder import climb as climbing
from kernelyard.ladder.climb import climb
from kernelyard.suites.library import implementation

FLOOR = Floor(
    bytes=1, operations=0, bound="memory", floor_ms=0.5, copy_gbps=1.0, tflops=None,
    datasheet_gbps=None, impossible_ms=0.1,
)  # fmt: skip


def test_wrong_and_refusing_backends_have_no_time(device: torch.device) -> None:
    operator = ops.definition("softmax")
    eager = implementation("softmax", "eager")
    wrong = replace(eager, backend="wrong", call=lambda x, dim: torch.softmax(x, dim) * 1.01)
    fickle = replace(eager, backend="fickle", call=lambda x, dim: torch.softmax(x + 1e-3 * torch.rand_like(x), dim))
    shy = replace(eager, backend="shy", refusal=lambda x, dim: "not today")
    workload = operator.workload_of((8, 100), "float32")
    ladder = climb(operator, [eager, wrong, fickle, shy], eager, workload, Mode.FORWARD, FLOOR, device)
    assert {row.backend: row.status for row in ladder.rows} == {
        "eager": "passed",
        "wrong": "incorrect_value",
        "fickle": "incorrect_value",
        "shy": "refused",
    }
    assert [row.backend for row in ladder.rows if row.time is not None] == ["eager"]
    assert ladder.fastest is ladder.rows[0]
    assert "800 of 800 elements differ" in ladder.rows[1].message


def test_what_raises_only_beside_the_others_costs_them_nothing(device: torch.device, monkeypatch) -> None:
    operator, eager = ops.definition("softmax"), implementation("softmax", "eager")

    def short_of_memory(operator: Operator, candidate: Implementation, *arguments: Any) -> Any:
        if candidate.backend == "large":
            raise torch.OutOfMemoryError("out of memory\nand a page about it")
        return prepare(operator, candidate, *arguments)

    monkeypatch.setattr(climbing, "prepare", short_of_memory)
    workload = operator.workload_of((8, 100), "float32")
    backends = [replace(eager, backend="large"), eager]
    large, other = climb(operator, backends, eager, workload, Mode.FORWARD, FLOOR, device).rows
    assert (large.status, large.message) == ("runtime_error", "OutOfMemoryError: out of memory")
    assert large.time is None and other.time is not None
