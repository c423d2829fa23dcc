"""The eager rung: torch's own layer_norm where it means the same, else the formula as models write it out."""

import torch
import torch.nn.functional as F

from kernelyard.kernels.norms.shapes import broadcast, span
from kernelyard.kernels.support import floating_refusal


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return floating_refusal(x, weight, bias)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> torch.Tensor:
    """Layer norm of `x` over the `count` dims that end at `dim`; any floating dtype, any device.

    torch takes a weight of x's own dtype over the last dims; for any other the formula runs in float32.
    """
    first, end = span(x, count, dim)
    if end == x.dim() and all(p is None or p.dtype == x.dtype for p in (weight, bias)):
        return F.layer_norm(x, x.shape[first:], weight, bias, eps)
    wide = x.contiguous().to(torch.promote_types(x.dtype, torch.float32))
    dims = list(range(first, end))
    mean = wide.mean(dims, keepdim=True)
    variance = (wide - mean).pow(2).mean(dims, keepdim=True)
    y = (wide - mean) * torch.rsqrt(variance + eps)
    if weight is not None:
        y = y * broadcast(weight, x, dim)
    if bias is not None:
        y = y + broadcast(bias, x, dim)
    return y.to(x.dtype)
