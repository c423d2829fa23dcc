"""The torch.compile rung: the written-out formula, fused by Inductor for the exact shape called with."""

import torch

from kernelyard.kernels.compiled import compiled, compiler_refusal
from kernelyard.kernels.norms.shapes import broadcast, span
from kernelyard.kernels.support import dtype_refusal


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return dtype_refusal(x, weight, bias) or compiler_refusal()


@compiled
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> torch.Tensor:
    """Layer norm of `x` over the `count` dims that end at `dim`, in float32, returned in x's dtype."""
    dims = list(range(*span(x, count, dim)))
    wide = x.float()
    centred = wide - wide.mean(dims, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)
    if weight is not None:
        y = y * broadcast(weight, x, dim).float()
    if bias is not None:
        y = y + broadcast(bias, x, dim).float()
    return y.to(x.dtype).contiguous()
