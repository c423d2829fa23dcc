"""Liger's SwiGLU: one Triton program a row. It raises for rows of more than 65536."""

import torch
from liger_kernel.ops.swiglu import LigerFusedGateUpSiLUMulFunction, LigerSiLUMulFunction

from kernelyard.kernels.glu.support import refusal_of_dtypes
from kernelyard.kernels.support import cuda_refusal

NOTE = "its backward writes the gradients over gate and up, of which it has copies of its own, and is right once"
OVERWRITES = True
WALKS_ONCE = True
LONGEST = 65536


def refusal(gate: torch.Tensor, up: torch.Tensor | None) -> str | None:
    """Why Liger does not take the input, or None."""
    columns = gate.shape[-1] // (2 if up is None else 1) if gate.ndim else 0
    if gate.numel() == 0 or not 0 < columns <= LONGEST:
        return f"takes rows of 1 to {LONGEST}"
    return cuda_refusal(gate) or refusal_of_dtypes(gate, up)


def swiglu(gate: torch.Tensor, up: torch.Tensor | None) -> torch.Tensor:
    """silu(gate) * up; any shape, which Liger makes contiguous."""
    if up is None:
        return LigerFusedGateUpSiLUMulFunction.apply(gate, False)
    return LigerSiLUMulFunction.apply(gate, up)
