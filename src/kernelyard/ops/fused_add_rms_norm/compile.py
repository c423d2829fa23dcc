"""The torch.compile rung: the written-out formula, fused by Inductor for the exact shape called with."""

import torch

from kernelyard.kernels.compiled import compiled, compiler_refusal
from kernelyard.kernels.norms.shapes import result_dtype
from kernelyard.kernels.support import dtype_refusal


def refusal(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> str | None:
    """Why this backend does not take the input, or None."""
    return dtype_refusal(x, residual, weight) or compiler_refusal()


@compiled
def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMS norm of the total, total) over the last dim, in float32 but for the total's and the casting's rounding."""
    total = (x + residual).to(x.dtype).contiguous()
    wide = total.float()
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    if weight is not None:
        if casting != "gemma":
            y = y.to(weight.dtype if casting == "t5" else x.dtype).float()
        y = y * (offset + weight.float())
    return y.to(result_dtype(x, weight, casting)), total
