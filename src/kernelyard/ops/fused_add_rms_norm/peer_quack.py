"""QuACK's RMS norm with a residual in and out: a CuTe kernel over rows of a matrix."""

import torch
from quack.rmsnorm import rmsnorm

from kernelyard.kernels.norms.shapes import residual_refusal, rows_refusal
from kernelyard.kernels.support import cuda_refusal, dtype_refusal

VECTOR = 16
"""Bytes that a row has to be a multiple of."""


def refusal(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> str | None:
    """Why QuACK does not take the input, or None."""
    if casting != "gemma":
        return "rounds once, at the end"
    if x.dim() and x.shape[-1] * x.element_size() % VECTOR:
        return f"takes rows of a multiple of {VECTOR} bytes"
    return rows_refusal(x, 1, -1) or residual_refusal(x, residual) or cuda_refusal(x) or dtype_refusal(x, weight)


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMS norm of the total over the last dim, total). It normalises the sum before it is rounded."""
    return rmsnorm(x, weight, residual=residual, eps=eps, prenorm=True, weight_offset=offset)
