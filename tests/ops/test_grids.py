"""Every operator's grid holds what users need of any operator, so that `check` and the contract test prove it."""

from collections.abc import Callable
from math import isqrt
from typing import Any

import pytest
import torch
from plain_calls import OPERATORS

from kernelyard import ops
from kernelyard.core.operator import Backend, Operator
from kernelyard.core.workload import DTYPES, Workload

CPU = torch.device("cpu")
VECTOR = 16
"""Bytes that a kernel reads at once where it may."""

Inputs = list[torch.Tensor]


def _floating(operator: Operator, workload: Workload) -> Inputs:
    given = operator.make_inputs(workload, CPU)
    return [given[name] for name in operator.differentiable if given[name] is not None]


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % divisor for divisor in range(2, isqrt(n) + 1))


def _some(holds: Callable[[torch.Tensor], Any]) -> Callable[[Inputs], bool]:
    return lambda tensors: any(holds(x) for x in tensors)


NEEDS: dict[str, Callable[[Inputs], bool]] = {
    "no rows": _some(lambda x: x.dim() > 1 and x.shape[0] == 0),
    "one row": _some(lambda x: x.dim() > 1 and x.shape[:-1].numel() == 1 and x.shape[-1] > 1),
    "a size that is odd": _some(lambda x: any(size > 8 and size % 2 for size in x.shape)),
    "a size that is prime": _some(lambda x: any(size > 8 and _is_prime(size) for size in x.shape)),
    "a length that is no multiple of 8": _some(lambda x: x.numel() and x.shape[-1] > 8 and x.shape[-1] % 8),
    "one element off any alignment": _some(lambda x: x.numel() and x.is_contiguous() and x.data_ptr() % VECTOR),
    "rows that lie apart": _some(lambda x: x.dim() > 1 and x.stride(-1) == 1 and x.stride(-2) > x.shape[-1] > 1),
    "elements that lie apart": _some(lambda x: x.dim() > 1 and x.numel() and x.stride(-1) > 1 and x.shape[-1] > 1),
    "rows that are one in memory": _some(lambda x: x.numel() and 0 in x.stride()),
}


# rope refuses an odd head in so many words; its sizes that are odd are heads, tokens and batches.
@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_grid_holds(operator: Operator, need: str) -> None:
    small = [workload for workload in operator.workloads if torch.Size(workload.shape).numel() < 2**16]
    assert any(NEEDS[need](_floating(operator, workload)) for workload in small)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_grid_holds_every_dtype_and_what_a_grids_side_cannot_count(operator: Operator) -> None:
    assert {workload.dtype for workload in operator.workloads} == set(DTYPES)
    assert any(max(workload.shape) > 65535 for workload in operator.gpu_workloads)


def _sizes(operator: Operator) -> set[int]:
    """Of the sweeps on a GPU, in bfloat16."""
    return {x for sweep in operator.sweeps("bfloat16", "cuda") if not sweep.host for x, _ in sweep.points}


LONG = [param for param in OPERATORS if 262144 in _sizes(param.values[0])]  # type: ignore[arg-type]
OVER_THE_CHIP = [
    param
    for param in OPERATORS
    if Backend.CUDA in ops.backends(str(param.id))
    and any("chip" in file.name for file in ops.source_files(str(param.id), Backend.CUDA))
]
WEIGHED = [param for param in OPERATORS if {"weight", "a"} & set(param.values[0].differentiable)]  # type: ignore[union-attr]


@pytest.mark.parametrize("operator", LONG)
def test_a_grid_of_rows_holds_a_mean_far_from_zero_and_rows_of_millions(operator: Operator) -> None:
    small = [workload for workload in operator.workloads if torch.Size(workload.shape).numel() < 2**16]
    tensors = [x.float() for workload in small for x in _floating(operator, workload) if x.numel() > 64]
    assert any(abs(x.mean()) > 50 * x.std() for x in tensors)
    assert any(max(workload.shape) > 4_000_000 and min(workload.shape) > 1 for workload in operator.gpu_workloads)


@pytest.mark.parametrize("operator", OVER_THE_CHIP)
def test_a_grid_holds_sixteen_rows_of_four_million(operator: Operator) -> None:
    """Where a kernel lays each of few rows over all of the chip, whether or not that is timed."""
    assert any(workload.shape == (16, 4194304) for workload in operator.gpu_workloads)


@pytest.mark.parametrize("operator", WEIGHED)
def test_a_grid_holds_a_weight_of_another_dtype(operator: Operator) -> None:
    assert any(len({x.dtype for x in _floating(operator, workload)}) > 1 for workload in operator.workloads)


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_is_timed_reaches_from_small_to_large(operator: Operator) -> None:
    """Rows of 1k to 16k for all; a batch of 1 to 512 by the host's time."""
    assert {1024, 4096, 16384} <= _sizes(operator)
    for dtype in DTYPES:
        host = [sweep for sweep in operator.sweeps(dtype, "cuda") if sweep.host]
        assert any({1, 512} <= {x for x, _ in sweep.points} for sweep in host), dtype


def test_there_are_operators_on_rows_and_with_weights() -> None:
    assert LONG and WEIGHED and OVER_THE_CHIP
