"""A residual added and the sum RMS-normalised in one pass, in every backend of the ladder."""

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.kernels.norms.shapes import check_casting, check_parameters, default_eps
from kernelyard.kernels.prepared import Layout, Prepared, inference
from kernelyard.ops.arguments import check_number, check_string, check_tensors
from kernelyard.ops.dispatch import implementation

prepared = Prepared()


def layout(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float | None,
    offset: float,
    casting: str,
) -> Layout:
    """All that decides whether a call is right and the CUDA backend takes it."""
    return (
        *(input.shape, input.dtype, input.get_device()),
        *(residual.shape, residual.dtype, residual.get_device()),
        None if weight is None else (weight.shape, weight.dtype, weight.get_device()),
        default_eps(input) if eps is None else eps,
        offset,
        casting,
    )


def fused_add_rms_norm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float | None = 1e-6,
    *,
    offset: float = 0.0,
    casting: str = "gemma",
    backend: Backend | str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(rms_norm(total), total) over the last dim, with total = input + residual rounded to the input's dtype.

    input and residual: one shape of one dim or more (also with no elements), any layouts, one dtype for the kernels;
    weight: the size of the last dim, of a dtype that may differ; float32, bfloat16 or float16 for the kernels.
    `offset`, `casting` and `eps=None` as in `rms_norm`, whose dtype the first result has. Both results are new and
    contiguous and nothing is written in place; differentiable with respect to input, residual and weight, through
    either result.

    Without `backend`: CUDA C++ on an NVIDIA GPU, else Triton on a GPU. Where neither takes the input (a CPU
    tensor, float64) it is an addition and torch's own rms_norm, which a log line says once. A named backend is used
    or refused, never replaced.

    Raises TypeError for an argument of another kind; UsageError for a residual or weight of another shape or on another
    device, an unknown casting or backend, or a backend that does not take the input.
    """
    plain = backend is None and type(offset) is not bool and residual is not None
    if plain and prepared and inference(input, residual, weight):
        try:
            run = prepared.get(layout(input, residual, weight, eps, offset, casting))
        except TypeError:  # of an argument that is named below
            run = None
        if run is not None:
            return run(input, residual, weight)
    check_tensors("fused_add_rms_norm", {"input": input, "residual": residual}, {"weight": weight})
    if input.dim() == 0 or residual.shape != input.shape:
        raise UsageError(
            f"input and residual have shapes {list(input.shape)} and {list(residual.shape)}, "
            "expected one shape, of a dimension or more"
        )
    eps = default_eps(input) if eps is None else check_number("fused_add_rms_norm", "eps", eps)
    offset = check_number("fused_add_rms_norm", "offset", offset)
    check_string("fused_add_rms_norm", "casting", casting)
    check_parameters(input, 1, -1, weight=weight)
    check_casting(casting)
    arguments = (residual, weight, eps, offset, casting)
    return implementation("fused_add_rms_norm", backend, input, *arguments)(input, *arguments)
