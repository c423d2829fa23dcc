"""The eager rung: torch's linear layer and sum, as a model would write them. It is the honest baseline."""

import torch

from kernelyard.kernels.support import floating_refusal


def refusal(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> str | None:
    """Why this backend does not take the input, or None."""
    return floating_refusal(x, weight, bias)


def fused_linear_rowsum(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """(x @ weight.T + bias).sum(-1) in x's dtype; weight and bias of another dtype are cast, as autocast would."""
    bias = None if bias is None else bias.to(x.dtype)
    return torch.nn.functional.linear(x, weight.to(x.dtype), bias).sum(-1)
