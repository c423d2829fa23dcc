"""Layer normalisation, in every backend of the ladder."""

from collections.abc import Sequence

import torch

from kernelyard.core.operator import Backend
from kernelyard.kernels.norms.shapes import check_parameters, count_of
from kernelyard.kernels.prepared import Layout, Prepared, inference
from kernelyard.ops.arguments import check_dim, check_number, check_tensors, sizes
from kernelyard.ops.dispatch import implementation

prepared = Prepared()


def layout(
    input: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    dim: int,
) -> Layout:
    """All that decides whether a call is right and how the CUDA backend computes it."""
    return (
        *(input.shape, input.stride(), input.dtype, input.get_device(), input.data_ptr() % 16),
        # In a tuple 8.0 would be found for 8; torch.Size raises TypeError.
        (normalized_shape,) if type(normalized_shape) is int else torch.Size(normalized_shape),  # type: ignore[arg-type]
        None
        if weight is None
        else (weight.shape, weight.stride(), weight.dtype, weight.get_device(), weight.data_ptr() % 16),
        None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.get_device(), bias.data_ptr() % 16),
        eps,
        dim,
    )


def layer_norm(
    input: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    dim: int = -1,
    backend: Backend | str | None = None,
) -> torch.Tensor:
    """(input - mean) / sqrt(variance + eps) * weight + bias, over the dims of `normalized_shape` that end at `dim`.

    input: any shape of one dim or more (also with no elements) and any layout; weight and bias: `normalized_shape`, of
    one dtype, which may differ from the input's; float32, bfloat16 or float16 for the kernels. With `dim=-1` it is
    `torch.nn.functional.layer_norm`; with `dim=1` and a single size it normalises the channels of an image in place of
    two transpositions. Returns a contiguous tensor of the input's shape and dtype, computed in float32,
    differentiable with respect to input, weight and bias; the gradients are the same bits each time.

    Without `backend`: CUDA C++ on an NVIDIA GPU, else Triton on a GPU. Where neither takes the input (a CPU
    tensor, float64) it is torch's own layer_norm, which a log line says once. A named backend is used or
    refused, never replaced.

    Raises TypeError for an argument of another kind, IndexError for a dim that the input does not have; UsageError for
    a `normalized_shape` that does not end there, a weight or bias of another shape or on another device, an unknown
    backend or one that does not take the input.
    """
    if backend is None and prepared and type(dim) is int and inference(input, weight, bias):
        try:
            run = prepared.get(layout(input, normalized_shape, weight, bias, eps, dim))
        except TypeError:  # of an argument that is named below
            run = None
        if run is not None:
            return run(input, weight, bias)
    check_tensors("layer_norm", {"input": input}, {"weight": weight, "bias": bias})
    dim = check_dim("layer_norm", dim, input.dim())
    count = count_of(input, sizes("layer_norm", "normalized_shape", normalized_shape), dim)
    eps = check_number("layer_norm", "eps", eps)
    check_parameters(input, count, dim, weight=weight, bias=bias)
    arguments = (weight, bias, eps, count, dim)
    return implementation("layer_norm", backend, input, *arguments)(input, *arguments)
