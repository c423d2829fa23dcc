"""No library: what a careful user of torch writes, the column sum first. The plain product is too easy a rival."""

import torch

from kernelyard.kernels.support import dtype_refusal


def refusal(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> str | None:
    """Why this form does not take the inputs, or None."""
    if any(item is not None and item.dtype != x.dtype for item in (weight, bias)):
        return "takes tensors of one dtype"
    return dtype_refusal(x)


def fused_linear_rowsum(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`x @ weight.sum(0) + bias.sum()`, the sums rounded to the dtype that all have."""
    y = x @ weight.sum(0)
    return y if bias is None else y + bias.sum()
