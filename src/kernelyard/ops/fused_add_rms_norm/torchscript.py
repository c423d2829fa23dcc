"""The TorchScript rung: the written-out formula, scripted. Deprecated in torch; kept as a step of the ladder."""

import torch

from kernelyard.kernels.scripted import script_refusal, scripted
from kernelyard.kernels.support import dtype_refusal


def refusal(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> str | None:
    """Why this backend does not take the input, or None."""
    return dtype_refusal(x, residual, weight) or script_refusal()


@scripted
def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMS norm of the total, total) over the last dim, in float32 but for the total's and the casting's rounding."""
    total = (x + residual).to(x.dtype).contiguous()
    wide = total.float()
    y = wide * torch.rsqrt(wide.square().mean([-1], keepdim=True) + eps)
    if weight is None:
        return y.to(x.dtype), total
    if casting == "llama":
        y = y.to(x.dtype).float()
    if casting == "t5":
        y = y.to(weight.dtype).float()
    return (y * (offset + weight.float())).to(weight.dtype if casting == "t5" else x.dtype), total
