"""The torch.compile rung: the written-out formula, fused by Inductor for the exact shape called with."""

import torch

from kernelyard.kernels.compiled import compiled, compiler_refusal
from kernelyard.kernels.norms.shapes import broadcast, result_dtype, span
from kernelyard.kernels.support import dtype_refusal


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return dtype_refusal(x, weight) or compiler_refusal()


@compiled
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> torch.Tensor:
    """RMS norm of `x` over the `count` dims that end at `dim`, in float32 but for the casting's own rounding."""
    wide = x.float()
    y = wide * torch.rsqrt(wide.square().mean(list(range(*span(x, count, dim))), keepdim=True) + eps)
    if weight is not None:
        if casting != "gemma":
            y = y.to(weight.dtype if casting == "t5" else x.dtype).float()
        y = y * (offset + broadcast(weight, x, dim).float())
    return y.to(result_dtype(x, weight, casting)).contiguous()
