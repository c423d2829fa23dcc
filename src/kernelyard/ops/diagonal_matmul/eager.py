"""The eager rung: torch's broadcast product. `torch.diag(a) @ B` would make an N x N matrix first."""

import torch


def refusal(a: torch.Tensor, B: torch.Tensor) -> str | None:
    """None: there is no input that this backend does not take."""
    return None


def diagonal_matmul(a: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Row i of B (N, M) times a[i] (N,), in B's dtype; any floating dtypes, any device."""
    return (a[:, None] * B).to(B.dtype)
