"""Rotary position embedding, in every backend of the ladder."""

import torch

from kernelyard.core.operator import Backend
from kernelyard.ops.arguments import check_tensors, check_truth
from kernelyard.ops.dispatch import implementation
from kernelyard.ops.rope.layout import shape_error


def rope(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    interleaved: bool = False,
    backend: Backend | str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k with their heads' elements rotated in pairs by the angles whose cosines and sines are given.

    q (B, Hq, T, D) and k (B, Hk, T, D) as transformers has them, of one dtype: float32, bfloat16 or float16 for the
    kernels; any number of heads each. cos, sin (T, R) or (B, T, R) in float32 or q's dtype, both for every element
    of a head: with R < D only the first R are rotated and the rest passes through. The pairs are elements i and
    i + R / 2 (Llama's rotate_half), with `interleaved` elements 2 i and 2 i + 1 (GPT-J).

    Heads and tokens may lie in memory in either order, at any distance: views of a projection's (B, T, H, D) are read
    where they are, as long as a head's elements are adjacent. Each result, of its input's shape and dtype, has no gaps,
    and so has each gradient; of the kernels they lie in the input's order, (B, T, H, D) or (B, H, T, D), of the other
    backends in either, as torch chooses. Computed in float32, rounded
    once, differentiable with respect to q and k. No kernel differentiates cos and sin: none takes a call in which one
    of them wants a gradient, which torch's own operators give. Tables that are not trained go in detached.

    Without `backend`: CUDA C++ on an NVIDIA GPU, else Triton on a GPU. Where neither takes the input (a CPU
    tensor, float64, a table that is trained) it is torch's own operators, which a log line says once. A named backend
    is used or refused, never replaced.

    Raises TypeError for an argument of another kind, ValueError for shapes that do not belong together or an odd D or
    R, UsageError for tensors on two devices, an unknown backend or one that does not take the input.
    """
    check_tensors("rope", {"q": q, "k": k, "cos": cos, "sin": sin})
    check_truth("rope", "interleaved", interleaved)
    if (wrong := shape_error(q, k, cos, sin)) is not None:
        raise ValueError(f"rope: {wrong}")
    return implementation("rope", backend, q, k, cos, sin, interleaved)(q, k, cos, sin, interleaved)
