"""Liger's RMS norm: a Triton program a row forward, one a multiprocessor backward. Told not to overwrite dy."""

import torch
from liger_kernel.ops.rms_norm import LigerRMSNormFunction

from kernelyard.kernels.norms.shapes import rows_refusal
from kernelyard.kernels.support import cuda_refusal, dtype_refusal

LONGEST = 65536


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> str | None:
    """Why Liger does not take the input, or None."""
    if casting == "t5":
        return "casts as Gemma or Llama"
    if weight is not None and weight.dtype != x.dtype:
        return "takes a weight of x's dtype"
    if x.dim() and x.shape[-1] > LONGEST:
        return f"takes rows of up to {LONGEST}, not {x.shape[-1]}"
    return rows_refusal(x, count, dim) or cuda_refusal(x) or dtype_refusal(x)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> torch.Tensor:
    """RMS norm of `x` over its last dim."""
    return LigerRMSNormFunction.apply(x, weight, eps, offset, casting, False)
