"""A batch in parts, where its rows have nothing to do with each other.

KernelBench's larger inputs and answers are 13 GB together in fp32. In float64 they are 26 GB, and beside what two
workers hold of theirs that is more than an H100 has: computed on the host instead, one answer takes seconds.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from kernelyard.core.problem import each_tensor
from kernelyard.sandbox.wire import named_leaves

# Float64 answers of the whole batch and of its parts agree to this where the rows have nothing to do with each other.
SAME_IN_FLOAT64 = 1e-12


def rows_of(arguments: Sequence[Any], answers: Sequence[Tensor]) -> int | None:
    """The leading extent that all answers share with at least one input."""
    if not answers or not all(answer.dim() for answer in answers):
        return None
    extents = {answer.shape[0] for answer in answers}
    rows = next(iter(extents))
    return rows if len(extents) == 1 and rows > 1 and has_rows(arguments, rows) else None


def has_rows(arguments: Sequence[Any], rows: int) -> bool:
    """Whether an input has that leading extent."""
    inputs = [value for _, value in named_leaves(arguments) if isinstance(value, Tensor)]
    return any(x.dim() and x.shape[0] == rows for x in inputs)


def part(value: Any, rows: int, start: int, stop: int) -> Any:
    """`value` with those rows of every tensor within it that has `rows` of them."""
    return each_tensor(value, lambda x: x[start:stop] if x.dim() and x.shape[0] == rows else x)


def spans(rows: int, step: int) -> Iterator[tuple[int, int]]:
    """Start and stop of each part."""
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


def close(got: Tensor, reference: Tensor, scale: float) -> bool:
    """Whether both are the same to float64's rounding, in a tensor whose largest element is `scale`."""
    if got.shape != reference.shape:
        return False
    return largest(got.double() - reference.to(got.device).double()) <= SAME_IN_FLOAT64 * scale


def largest(tensor: Tensor) -> float:
    """Its largest magnitude; 0 of nothing."""
    if not tensor.numel():
        return 0.0
    number = tensor if tensor.is_floating_point() else tensor.double()
    return torch.linalg.vector_norm(number, float("inf")).item()
