"""diag(a) @ B without the matrix product, in every backend of the ladder."""

import torch

from kernelyard.core.operator import Backend
from kernelyard.kernels.prepared import Layout, Prepared, inference
from kernelyard.ops.arguments import check_tensors
from kernelyard.ops.dispatch import implementation

prepared = Prepared()


def layout(a: torch.Tensor, B: torch.Tensor) -> Layout:
    """All that decides whether a call is right and how the CUDA backend computes it."""
    return (
        *(a.shape, a.stride(), a.dtype, a.get_device()),
        *(B.shape, B.stride(), B.dtype, B.get_device(), B.data_ptr() % 16),
    )


def diagonal_matmul(a: torch.Tensor, B: torch.Tensor, *, backend: Backend | str | None = None) -> torch.Tensor:
    """diag(a) @ B: row i of B times a[i], by the fastest backend that takes the inputs.

    a: (N,), B: (N, M) in any layout; each float32, bfloat16 or float16 for the kernels, and not necessarily the
    same. Returns a contiguous (N, M) tensor of B's dtype, each element rounded once, differentiable with respect to
    both; the gradient of a has a's dtype and is summed in float32, bit for bit the same at every call.

    Without `backend`: CUDA C++ on an NVIDIA GPU, else Triton on a GPU. Where neither takes the inputs (CPU tensors,
    float64) it is torch's broadcast product, which a log line says once. A named backend is used or refused, never
    replaced.

    Raises TypeError for what is no tensor, ValueError for shapes that do not fit, UsageError for tensors on two
    devices, an unknown backend or one that does not take the inputs.
    """
    if backend is None and prepared and a is not None and inference(B, a):
        run = prepared.get(layout(a, B))
        if run is not None:
            return run(a, B)
    check_tensors("diagonal_matmul", {"a": a, "B": B})
    if a.dim() != 1 or B.dim() != 2 or a.shape[0] != B.shape[0]:
        raise ValueError(f"diagonal_matmul takes (N,) and (N, M), not {tuple(a.shape)} and {tuple(B.shape)}")
    return implementation("diagonal_matmul", backend, a, B)(a, B)
