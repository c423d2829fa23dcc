"""The eager rung: an addition, then torch's own rms_norm where it means the same, else the models' own lines."""

import torch
import torch.nn.functional as F

from kernelyard.kernels.support import floating_refusal


def refusal(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> str | None:
    """Why this backend does not take the input, or None."""
    return floating_refusal(x, residual, weight)


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMS norm of the total over the last dim, total); any floating dtype, any device."""
    total = (x + residual).to(x.dtype).contiguous()
    if casting == "gemma" and (weight is None or (offset == 0 and weight.dtype == x.dtype)):
        return F.rms_norm(total, total.shape[-1:], weight, eps), total
    wide = total.to(torch.promote_types(x.dtype, torch.float32))
    hat = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if weight is None:
        return hat.to(x.dtype), total
    scale = offset + weight.to(wide.dtype) if offset else weight
    if casting == "llama":
        return (scale * hat.to(x.dtype)).to(x.dtype), total
    if casting == "t5":
        if weight.dtype in (torch.float16, torch.bfloat16):
            hat = hat.to(weight.dtype)
        return (scale * hat).to(weight.dtype), total
    return (hat * scale).to(x.dtype), total
