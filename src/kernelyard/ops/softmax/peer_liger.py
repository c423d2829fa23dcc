"""Liger's softmax: one Triton program a row. It raises for rows of more than 65536."""

import torch
from liger_kernel.ops.softmax import LigerSoftmaxFunction

from kernelyard.kernels.support import cuda_refusal, dtype_refusal

LONGEST = 65536


def refusal(x: torch.Tensor, dim: int) -> str | None:
    """Why Liger does not take the input, or None."""
    if x.ndim == 0 or dim not in (-1, x.ndim - 1) or x.numel() == 0:
        return "takes the last dim of a tensor that is not empty"
    if x.shape[-1] > LONGEST:
        return f"takes rows of up to {LONGEST}, not {x.shape[-1]}"
    return cuda_refusal(x) or dtype_refusal(x)


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Softmax of `x` along its last dim; any shape."""
    return LigerSoftmaxFunction.apply(x)
