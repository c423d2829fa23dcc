"""RMS normalisation, in every backend of the ladder."""

from collections.abc import Sequence

import torch

from kernelyard.core.operator import Backend
from kernelyard.kernels.norms.shapes import check_casting, check_parameters, count_of, default_eps
from kernelyard.kernels.prepared import Layout, Prepared, inference
from kernelyard.ops.arguments import check_dim, check_number, check_string, check_tensors, sizes
from kernelyard.ops.dispatch import implementation

prepared = Prepared()


def layout(
    input: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None,
    eps: float | None,
    offset: float,
    casting: str,
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
        default_eps(input) if eps is None else eps,
        offset,
        casting,
        dim,
    )


def rms_norm(
    input: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
    *,
    offset: float = 0.0,
    casting: str = "gemma",
    dim: int = -1,
    backend: Backend | str | None = None,
) -> torch.Tensor:
    """input / sqrt(mean square + eps) * (offset + weight), over the dims of `normalized_shape` that end at `dim`.

    input: any shape of one dim or more (also with no elements) and any layout; weight: `normalized_shape`, of a dtype
    that may differ from the input's; float32, bfloat16 or float16 for the kernels. `eps=None` is torch's default, the
    eps of the dtype that torch computes in: 1.2e-7 for all three.

    `offset=1` is Gemma's weight. `casting` says where half precision is rounded: "gemma" once at the end, which is
    torch's own order; "llama" the normalised input to the input's dtype, then times the weight; "t5" the normalised
    input to the weight's dtype where that is half, and the result in the weight's dtype. With "gemma" and "llama" the
    result has the input's dtype. It is contiguous, computed in float32, differentiable with respect to input and
    weight; gradients round once, whatever the casting, and are the same bits each time.

    With `dim=-1` and no options it is `torch.nn.functional.rms_norm`. Without `backend`: CUDA C++ on an NVIDIA GPU,
    else Triton on a GPU. Where neither takes the input (a CPU tensor, float64) it is torch's own rms_norm, which a
    log line says once. A named backend is used or refused, never replaced.

    Raises TypeError for an argument of another kind, IndexError for a dim that the input does not have; UsageError for
    a `normalized_shape` that does not end there, a weight of another shape or on another device, an unknown casting or
    backend, or a backend that does not take the input.
    """
    if backend is None and prepared and type(dim) is int and type(offset) is not bool and inference(input, weight):
        try:
            run = prepared.get(layout(input, normalized_shape, weight, eps, offset, casting, dim))
        except TypeError:  # of an argument that is named below
            run = None
        if run is not None:
            return run(input, weight, None)
    check_tensors("rms_norm", {"input": input}, {"weight": weight})
    dim = check_dim("rms_norm", dim, input.dim())
    count = count_of(input, sizes("rms_norm", "normalized_shape", normalized_shape), dim)
    eps = default_eps(input) if eps is None else check_number("rms_norm", "eps", eps)
    offset = check_number("rms_norm", "offset", offset)
    check_string("rms_norm", "casting", casting)
    check_parameters(input, count, dim, weight=weight)
    check_casting(casting)
    arguments = (weight, eps, offset, casting, count, dim)
    return implementation("rms_norm", backend, input, *arguments)(input, *arguments)
