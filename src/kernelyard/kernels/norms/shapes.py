"""Which dims a norm works over: `count` of them, the last of which is `dim`."""

import torch

from kernelyard.core.errors import UsageError, unknown
from kernelyard.kernels.layout import Rows, along

CASTINGS = ("gemma", "llama", "t5")
"""Where an RMS norm rounds: once at the end; x_hat to x's dtype before the weight; x_hat to the weight's dtype where
that is half, and the result in the weight's dtype."""


_EPS32, _EPS64 = torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps


def count_of(x: torch.Tensor, shape: tuple[int, ...], dim: int) -> int:
    """How many dims the normalized shape has; raises UsageError where the dims of x that end at `dim` have others."""
    end = dim % x.dim() + 1 if x.dim() else 0
    if not shape or len(shape) > end or tuple(x.shape[end - len(shape) : end]) != shape:
        raise UsageError(
            f"normalized_shape is {list(shape)}, which are not the dims that end at {dim} of {list(x.shape)}"
        )
    return len(shape)


def check_parameters(
    x: torch.Tensor, count: int, dim: int, *, weight: torch.Tensor | None, bias: torch.Tensor | None = None
) -> None:
    """Raises UsageError for a weight or bias that has not the shape of the normalised dims."""
    end = dim % x.dim() + 1
    shape = x.shape[end - count : end]
    if weight is not None and weight.shape != shape:
        raise UsageError(f"weight has shape {list(weight.shape)}, expected {list(shape)}")
    if bias is not None and bias.shape != shape:
        raise UsageError(f"bias has shape {list(bias.shape)}, expected {list(shape)}")


def check_casting(casting: str) -> None:
    """Raises UsageError for an order of casts that is not one of `CASTINGS`."""
    if casting not in CASTINGS:
        raise unknown("casting", casting, CASTINGS)


def span(x: torch.Tensor, count: int, dim: int) -> tuple[int, int]:
    """The first of the normalised dims and the one after the last."""
    end = dim % x.dim() + 1
    return end - count, end


def lines(x: torch.Tensor, count: int, dim: int) -> int:
    """How many rows or columns are normalised, each by itself."""
    first, end = span(x, count, dim)
    number = 1
    for size in (*x.shape[:first], *x.shape[end:]):
        number *= size
    return number


def view(x: torch.Tensor, count: int, dim: int) -> Rows:
    """Non-empty `x` with the normalised dims as one, copied where no kernel reads the layout well."""
    if count == 1:
        return along(x, dim)
    first, end = span(x, count, dim)
    return along(x.flatten(first, end - 1), first)


def default_eps(x: torch.Tensor) -> float:
    """torch's own for rms_norm: the eps of the dtype it computes in, which is not the half types'."""
    return _EPS64 if x.dtype is torch.float64 else _EPS32


def result_dtype(x: torch.Tensor, weight: torch.Tensor | None, casting: str) -> torch.dtype:
    """x's, but the weight's where T5's order of casts ends in it."""
    return weight.dtype if casting == "t5" and weight is not None else x.dtype


def broadcast(weight: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """`weight`, of the shape of the dims that end at `dim`, as it multiplies `x`."""
    return weight.reshape(weight.shape + (1,) * (x.dim() - 1 - dim % x.dim()))


def parameters_refusal(weight: torch.Tensor | None, bias: torch.Tensor | None = None) -> str | None:
    """Why the kernels do not take a weight and a bias together, or None."""
    if bias is not None and (weight is None or weight.dtype != bias.dtype):
        return "takes a bias only beside a weight of the same dtype"
    return None


def residual_refusal(x: torch.Tensor, residual: torch.Tensor) -> str | None:
    """Why the kernels do not add a residual to x, or None."""
    if residual.shape != x.shape or residual.dtype != x.dtype:
        return "takes a residual of x's shape and dtype"
    return None


def rows_refusal(x: torch.Tensor, count: int, dim: int) -> str | None:
    """Why a library that knows rows of a matrix alone does not take the input, or None."""
    if count != 1 or dim not in (-1, x.dim() - 1) or x.numel() == 0:
        return "takes the last dim of a tensor that is not empty"
    return None
