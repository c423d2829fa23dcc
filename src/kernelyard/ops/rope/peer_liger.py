"""Liger's rope: one Triton program a token, in place on what lies as (B, T, H, D), on a copy of anything else."""

import torch
from liger_kernel.ops.rope import LigerRopeFunction

from kernelyard.kernels.support import cuda_refusal
from kernelyard.ops.rope.layout import refusal_of_dtypes

NOTE = "writes its results over what lies as (B, T, H, D), of which it has copies of its own; anything else it copies"
OVERWRITES = True


def refusal(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> str | None:
    """Why Liger does not take the input, or None."""
    if interleaved:
        return "takes pairs in halves alone"
    if q.numel() == 0 or k.numel() == 0 or cos.shape[-1] == 0:
        return "takes q, k and tables that are not empty"
    return cuda_refusal(q) or refusal_of_dtypes(q, k, cos, sin)


def rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k rotated, as views of (B, T, H, D)."""
    return LigerRopeFunction.apply(q, k, cos, sin)
