"""The torch.compile rung: the written-out formula, fused by Inductor for the exact shape called with."""

import torch

from kernelyard.kernels.compiled import compiled, compiler_refusal
from kernelyard.kernels.glu.support import refusal_of_dtypes


def refusal(gate: torch.Tensor, up: torch.Tensor | None) -> str | None:
    """Why this backend does not take the input, or None."""
    return refusal_of_dtypes(gate, up) or compiler_refusal()


@compiled
def swiglu(gate: torch.Tensor, up: torch.Tensor | None) -> torch.Tensor:
    """silu(gate) * up, computed in float32 and returned in gate's dtype; without `up`, of gate's halves."""
    if up is None:
        gate, up = gate.chunk(2, -1)
    wide = gate.float()
    return (wide * torch.sigmoid(wide) * up.float()).to(gate.dtype).contiguous()
