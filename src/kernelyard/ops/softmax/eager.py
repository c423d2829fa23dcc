"""The eager rung: torch's own softmax. It is the honest baseline."""

import torch

from kernelyard.kernels.support import floating_refusal


def refusal(x: torch.Tensor, dim: int) -> str | None:
    """Why this backend does not take the input, or None."""
    return floating_refusal(x)


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Softmax of `x` along `dim`; any shape, any floating dtype, any device."""
    return torch.softmax(x, dim)
