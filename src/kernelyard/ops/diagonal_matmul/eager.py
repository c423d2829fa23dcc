"""The eager rung: torch's broadcast product. `torch.diag(a) @ B` would make an N x N matrix first."""

import torch

from kernelyard.kernels.support import floating_refusal


def refusal(a: torch.Tensor, B: torch.Tensor) -> str | None:
    """Why this backend does not take the input, or None."""
    return floating_refusal(a, B)


def diagonal_matmul(a: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Row i of B (N, M) times a[i] (N,), in B's dtype; any floating dtypes, any device."""
    return (a[:, None] * B).to(B.dtype).contiguous()
