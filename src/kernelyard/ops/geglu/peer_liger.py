"""Liger's GEGLU: one Triton program a row, the tanh form alone. It raises for rows of more than 65536."""

import torch
from liger_kernel.ops.geglu import LigerGELUMulFunction

from kernelyard.kernels.glu.support import refusal_of_dtypes
from kernelyard.kernels.support import cuda_refusal

NOTE = "its backward writes the gradients over gate and up, of which it has copies of its own, and is right once"
OVERWRITES = True
WALKS_ONCE = True
LONGEST = 65536


def refusal(gate: torch.Tensor, up: torch.Tensor | None, approximate: str) -> str | None:
    """Why Liger does not take the input, or None."""
    if up is None or approximate != "tanh":
        return "takes gate and up apart, and the tanh form"
    if gate.numel() == 0 or gate.ndim == 0 or gate.shape[-1] > LONGEST:
        return f"takes rows of 1 to {LONGEST}"
    return cuda_refusal(gate) or refusal_of_dtypes(gate, up)


def geglu(gate: torch.Tensor, up: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu(gate) * up by tanh; any shape, which Liger makes contiguous."""
    return LigerGELUMulFunction.apply(gate, up)
