"""QuACK's rotary: a CuTe kernel for one tensor (B, T, H, D), so two launches; half of cos and sin is read."""

import torch
from quack.rotary import apply_rotary_emb

from kernelyard.kernels.support import cuda_refusal
from kernelyard.ops.rope.layout import refusal_of_dtypes

WIDEST = 512


def refusal(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> str | None:
    """Why QuACK does not take the input, or None."""
    width, rotated = q.shape[-1], cos.shape[-1]
    if cos.dim() != 2 or q.numel() == 0 or k.numel() == 0:
        return "takes one table for all batches, and tensors that are not empty"
    if width % 8 or rotated % 8 or not rotated or width > WIDEST:
        return f"takes heads of up to {WIDEST} elements in eights"
    if any(x.stride(3) != 1 or any(stride % 8 for stride in x.stride()[:3]) or x.data_ptr() % 16 for x in (q, k)):
        return "takes heads that start at 16 bytes"
    return cuda_refusal(q) or refusal_of_dtypes(q, k, cos, sin)


def rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k rotated, as views of (B, T, H, D)."""
    half = slice(0, None, 2) if interleaved else slice(0, cos.shape[-1] // 2)
    tables = cos[:, half], sin[:, half]
    rotated = [apply_rotary_emb(x.transpose(1, 2), *tables, interleaved=interleaved).transpose(1, 2) for x in (q, k)]
    return rotated[0], rotated[1]
