"""The TorchScript rung: the written-out formula, scripted. Deprecated in torch; kept as a step of the ladder."""

from typing import Optional

import torch

from kernelyard.kernels.glu.support import refusal_of_dtypes
from kernelyard.kernels.scripted import script_refusal, scripted


def refusal(gate: torch.Tensor, up: torch.Tensor | None) -> str | None:
    """Why this backend does not take the input, or None."""
    return refusal_of_dtypes(gate, up) or script_refusal()


@scripted
def swiglu(gate: torch.Tensor, up: Optional[torch.Tensor]) -> torch.Tensor:  # noqa: UP045
    """silu(gate) * up, computed in float32 and returned in gate's dtype; without `up`, of gate's halves."""
    if up is None:
        left, right = gate.chunk(2, -1)
    else:
        left, right = gate, up
    wide = left.float()
    return (wide * torch.sigmoid(wide) * right.float()).to(gate.dtype).contiguous()
