"""The torch.compile rung: the written-out formula, fused by Inductor for the exact shape called with."""

import torch

from kernelyard.kernels.compiled import compiled, compiler_refusal
from kernelyard.kernels.support import dtype_refusal


def refusal(a: torch.Tensor, B: torch.Tensor) -> str | None:
    """Why this backend does not take the inputs, or None."""
    return dtype_refusal(a, B) or compiler_refusal()


@compiled
def diagonal_matmul(a: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Row i of B (N, M) times a[i] (N,), computed in float32 and returned in B's dtype."""
    return (a.float()[:, None] * B.float()).to(B.dtype).contiguous()
