"""The torch.compile rung: the written-out formula, fused by Inductor for the exact shape called with."""

import torch

from kernelyard.kernels.compiled import compiled, compiler_refusal
from kernelyard.ops.rope.layout import refusal_of_dtypes


def refusal(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> str | None:
    """Why this backend does not take the input, or None."""
    return refusal_of_dtypes(q, k, cos, sin) or compiler_refusal()


@compiled
def rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k rotated, computed in float32 and returned in their dtype."""
    cos, sin = cos.float().unsqueeze(-3), sin.float().unsqueeze(-3)
    return _rotated(q, cos, sin, interleaved), _rotated(k, cos, sin, interleaved)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    width = cos.shape[-1]
    turning = x[..., :width].float()
    if interleaved:
        quarter = torch.stack((-turning[..., 1::2], turning[..., ::2]), -1).flatten(-2)
    else:
        quarter = torch.cat((-turning[..., width // 2 :], turning[..., : width // 2]), -1)
    turned = (turning * cos + quarter * sin).to(x.dtype)
    return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), -1)
