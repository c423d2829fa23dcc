"""QuACK's RMS norm: a CuTe kernel over rows of a matrix, in a cluster's shared memory where they are long."""

import torch
from quack.rmsnorm import rmsnorm

from kernelyard.kernels.norms.shapes import rows_refusal
from kernelyard.kernels.support import cuda_refusal, dtype_refusal

VECTOR = 16
"""Bytes that a row has to be a multiple of."""


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> str | None:
    """Why QuACK does not take the input, or None."""
    if casting != "gemma":
        return "rounds once, at the end"
    if x.dim() and x.shape[-1] * x.element_size() % VECTOR:
        return f"takes rows of a multiple of {VECTOR} bytes"
    return rows_refusal(x, count, dim) or cuda_refusal(x) or dtype_refusal(x, weight)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> torch.Tensor:
    """RMS norm of `x` over its last dim."""
    return rmsnorm(x, weight, eps=eps, weight_offset=offset)
