"""The TorchScript rung: the column sum first, scripted. Deprecated in torch; kept as a step of the ladder."""

from typing import Optional

import torch

from kernelyard.kernels.scripted import script_refusal, scripted
from kernelyard.kernels.support import dtype_refusal


def refusal(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> str | None:
    """Why this backend does not take the inputs, or None."""
    return dtype_refusal(x, weight, bias) or script_refusal()


@scripted
def fused_linear_rowsum(x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor]) -> torch.Tensor:  # noqa: UP045
    """x . sum over o of weight[o], plus the sum of bias; computed in float32 and returned in x's dtype."""
    total = (x.float() * weight.float().sum(0)).sum(-1)
    if bias is not None:
        total = total + bias.float().sum()
    return total.to(x.dtype)
