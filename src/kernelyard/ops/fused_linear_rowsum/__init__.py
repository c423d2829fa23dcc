"""A linear layer and the sum of its outputs, without the matrix product, in every backend of the ladder."""

import torch

from kernelyard.core.operator import Backend
from kernelyard.kernels.prepared import Layout, Prepared, inference
from kernelyard.ops.arguments import check_tensors
from kernelyard.ops.dispatch import implementation

prepared = Prepared()


def layout(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> Layout:
    """All that decides whether a call is right and how the CUDA backend computes it."""
    return (
        *(input.shape, input.stride(), input.dtype, input.get_device(), input.data_ptr() % 16),
        *(weight.shape, weight.stride(), weight.dtype, weight.get_device(), weight.data_ptr() % 16),
        None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.get_device()),
    )


def fused_linear_rowsum(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    backend: Backend | str | None = None,
) -> torch.Tensor:
    """(input @ weight.T + bias).sum(-1), by the fastest backend that takes the inputs.

    input: (..., I), weight: (O, I), bias: (O,) or None, in any layout; each float32, bfloat16 or float16 for the
    kernels, and not necessarily the same. Returns a (...) tensor of the input's dtype. The sum over O comes first, of
    the weight and of the bias: 2 (B + O) I operations in place of 2 B O I, in float32, with one rounding at the end.
    Differentiable with respect to all three, bit for bit the same at every call.

    Without `backend`: CUDA C++ on an NVIDIA GPU, else Triton on a GPU. Where neither takes the inputs (CPU tensors,
    float64) it is torch's linear and sum, which a log line says once. A named backend is used or refused, never
    replaced.

    Raises TypeError for what is no tensor, ValueError for shapes that do not fit, UsageError for tensors on two
    devices, an unknown backend or one that does not take the inputs.
    """
    if backend is None and prepared and weight is not None and inference(input, weight, bias):
        run = prepared.get(layout(input, weight, bias))
        if run is not None:
            return run(input, weight, bias)[0]
    check_tensors("fused_linear_rowsum", {"input": input, "weight": weight}, {"bias": bias})
    fits = input.dim() > 0 and weight.dim() == 2 and input.shape[-1] == weight.shape[1]
    if not fits or (bias is not None and bias.shape != weight.shape[:1]):
        given = ", ".join(str(tuple(item.shape)) for item in (input, weight, bias) if item is not None)
        raise ValueError(f"fused_linear_rowsum takes (..., I), (O, I) and (O,), not {given}")
    return implementation("fused_linear_rowsum", backend, input, weight, bias)(input, weight, bias)
