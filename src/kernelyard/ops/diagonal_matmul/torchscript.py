"""The TorchScript rung: the written-out formula, scripted. Deprecated in torch; kept as a step of the ladder."""

import torch

from kernelyard.kernels.scripted import script_refusal, scripted
from kernelyard.kernels.support import dtype_refusal


def refusal(a: torch.Tensor, B: torch.Tensor) -> str | None:
    """Why this backend does not take the inputs, or None."""
    return dtype_refusal(a, B) or script_refusal()


@scripted
def diagonal_matmul(a: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Row i of B (N, M) times a[i] (N,), computed in float32 and returned in B's dtype."""
    return (a.float().unsqueeze(1) * B.float()).to(B.dtype).contiguous()
