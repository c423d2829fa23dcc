"""Liger's fused addition and RMS norm: a Triton program a row forward, one a multiprocessor backward."""

import torch
from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

from kernelyard.kernels.norms.shapes import residual_refusal, rows_refusal
from kernelyard.kernels.support import cuda_refusal, dtype_refusal

LONGEST = 65536


def refusal(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> str | None:
    """Why Liger does not take the input, or None."""
    if casting == "t5":
        return "casts as Gemma or Llama"
    if weight is None or weight.dtype != x.dtype:
        return "takes a weight of x's dtype"
    if x.dim() and x.shape[-1] > LONGEST:
        return f"takes rows of up to {LONGEST}, not {x.shape[-1]}"
    return rows_refusal(x, 1, -1) or residual_refusal(x, residual) or cuda_refusal(x) or dtype_refusal(x)


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMS norm of the total over the last dim, total)."""
    return LigerFusedAddRMSNormFunction.apply(x, residual, weight, eps, offset, casting, False)
