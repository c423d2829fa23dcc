"""The definition of diag(a) @ B in plain torch; the ground truth when called in float64."""

import torch


def diagonal_matmul(a: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Row i of B (N, M) times a[i] (N,), in B's dtype."""
    return (a[:, None] * B).to(B.dtype)
