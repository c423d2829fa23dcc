"""The TorchScript rung: the written-out formula, scripted. Deprecated in torch; kept as a step of the ladder."""

import torch

from kernelyard.kernels.scripted import script_refusal, scripted
from kernelyard.kernels.support import dtype_refusal


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return dtype_refusal(x, weight) or script_refusal()


@scripted
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> torch.Tensor:
    """RMS norm of `x` over the `count` dims that end at `dim`, in float32 but for the casting's own rounding."""
    end = dim % x.dim() + 1
    dims = [i for i in range(end - count, end)]  # noqa: C416 - TorchScript has no list(range)
    wide = x.float()
    y = wide * torch.rsqrt(wide.square().mean(dims, keepdim=True) + eps)
    if weight is None:
        return y.to(x.dtype).contiguous()
    if casting == "llama":
        y = y.to(x.dtype).float()
    if casting == "t5":
        y = y.to(weight.dtype).float()
    y = y * (offset + weight.float().reshape(list(weight.shape) + [1 for _ in range(x.dim() - end)]))
    return y.to(weight.dtype if casting == "t5" else x.dtype).contiguous()
