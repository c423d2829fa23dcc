"""The eager rung: torch's own rms_norm where it means the same, else the lines that the models themselves run."""

import torch
import torch.nn.functional as F

from kernelyard.kernels.norms.shapes import broadcast, span
from kernelyard.kernels.support import floating_refusal


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return floating_refusal(x, weight)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> torch.Tensor:
    """RMS norm of `x` over the `count` dims that end at `dim`; any floating dtype, any device.

    Gemma's order without offset, over the last dims, is torch's own; the others are Gemma's, Llama's and T5's lines.
    """
    first, end = span(x, count, dim)
    own = weight is None or (offset == 0 and weight.dtype == x.dtype)
    if casting == "gemma" and end == x.dim() and own:
        # Which lies as an image in channels_last does.
        return F.rms_norm(x, x.shape[first:], weight, eps).contiguous()
    wide = x.contiguous().to(torch.promote_types(x.dtype, torch.float32))
    hat = wide * torch.rsqrt(wide.pow(2).mean(list(range(first, end)), keepdim=True) + eps)
    if weight is None:
        return hat.to(x.dtype)
    scale = broadcast(weight, x, dim)
    if offset:
        scale = offset + scale.to(wide.dtype)
    if casting == "llama":
        return (scale * hat.to(x.dtype)).to(x.dtype)
    if casting == "t5":
        if weight.dtype in (torch.float16, torch.bfloat16):
            hat = hat.to(weight.dtype)
        return (scale * hat).to(weight.dtype)
    return (hat * scale).to(x.dtype)
