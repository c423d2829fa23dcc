"""QuACK's softmax: a CuTe kernel over rows of a matrix, in a cluster's shared memory where they are long."""

import torch
from quack.softmax import softmax as quack_softmax

from kernelyard.kernels.support import cuda_refusal, dtype_refusal

VECTOR = 16
"""Bytes that a row has to be a multiple of."""


def refusal(x: torch.Tensor, dim: int) -> str | None:
    """Why QuACK does not take the input, or None."""
    if x.ndim == 0 or dim not in (-1, x.ndim - 1) or x.numel() == 0:
        return "takes the last dim of a tensor that is not empty"
    if x.shape[-1] * x.element_size() % VECTOR:
        return f"takes rows of a multiple of {VECTOR} bytes"
    return cuda_refusal(x) or dtype_refusal(x)


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Softmax of `x` along its last dim; any shape, which QuACK gets as a matrix."""
    return quack_softmax(x.reshape(-1, x.shape[-1])).view(x.shape)
