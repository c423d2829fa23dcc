"""Softmax, in every backend of the ladder."""

import torch

from kernelyard.core.operator import Backend
from kernelyard.kernels.prepared import Layout, Prepared, inference
from kernelyard.ops.dispatch import implementation

prepared = Prepared()


def layout(x: torch.Tensor, dim: int) -> Layout:
    """All that decides how the CUDA backend computes a call."""
    return x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() % 16, dim


def softmax(x: torch.Tensor, dim: int = -1, *, backend: Backend | str | None = None) -> torch.Tensor:
    """exp(x) over its sum along `dim`, by the fastest backend that takes the input.

    x: any shape (empty and 0-d too) and layout; float32, bfloat16 or float16 for the kernels. Returns a
    contiguous tensor of x's shape and dtype, computed in float32, differentiable with respect to x. A row of
    minus infinity gives NaN, as torch does.

    Without `backend`: CUDA C++ on an NVIDIA GPU, else Triton on a GPU. Where neither takes the input (a CPU
    tensor, float64) it is torch's own softmax, which a log line says once. A named backend is used or
    refused, never replaced.

    Raises IndexError for a dim that x does not have; UsageError for an unknown backend or one that does not
    take x.
    """
    if backend is None and inference(x):
        run = prepared.get(layout(x, dim))
        if run is not None:
            return run(x)
    return implementation("softmax", backend, x, dim)(x, dim)
