"""Liger's layer norm: a Triton program a row forward, one a multiprocessor backward; statistics in x's dtype."""

import torch
from liger_kernel.ops.layer_norm import LigerLayerNormFunction

from kernelyard.kernels.norms.shapes import rows_refusal
from kernelyard.kernels.support import cuda_refusal, dtype_refusal

LONGEST = 65536


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> str | None:
    """Why Liger does not take the input, or None."""
    if weight is None or bias is None:
        return "takes a weight and a bias"
    if x.dim() and x.shape[-1] > LONGEST:
        return f"takes rows of up to {LONGEST}, not {x.shape[-1]}"
    return rows_refusal(x, count, dim) or cuda_refusal(x) or dtype_refusal(x, weight, bias)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> torch.Tensor:
    """Layer norm of `x` over its last dim."""
    return LigerLayerNormFunction.apply(x, weight, bias, eps)
