"""The TorchScript rung: the written-out formula, scripted. Deprecated in torch; kept as a step of the ladder."""

import torch

from kernelyard.kernels.scripted import script_refusal, scripted
from kernelyard.kernels.support import dtype_refusal


def refusal(x: torch.Tensor, dim: int) -> str | None:
    """Why this backend does not take the input, or None."""
    return dtype_refusal(x) or script_refusal()


@scripted
def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Softmax of `x` along `dim`, computed in float32 and returned in x's dtype; any shape."""
    if x.numel() == 0:
        return x.clone()
    wide = x.float()
    exponentials = torch.exp(wide - torch.amax(wide.detach(), [dim], keepdim=True))
    return (exponentials / exponentials.sum(dim, keepdim=True)).to(x.dtype).contiguous()
