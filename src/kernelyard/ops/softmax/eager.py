"""The eager rung: torch's own softmax. It is the honest baseline and takes every input."""

import torch


def refusal(x: torch.Tensor, dim: int) -> str | None:
    """None: there is no input that this backend does not take."""
    return None


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Softmax of `x` along `dim`; any shape, any floating dtype, any device."""
    return torch.softmax(x, dim)
