"""The TorchScript rung: the written-out formula, scripted. Deprecated in torch; kept as a step of the ladder."""

from typing import Tuple  # noqa: UP035

import torch

from kernelyard.kernels.scripted import script_refusal, scripted
from kernelyard.ops.rope.layout import refusal_of_dtypes


def refusal(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> str | None:
    """Why this backend does not take the input, or None."""
    return refusal_of_dtypes(q, k, cos, sin) or script_refusal()


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    width = cos.size(-1)
    turning, rest = x[..., :width].float(), x[..., width:]
    if interleaved:
        quarter = torch.stack((-turning[..., 1::2], turning[..., ::2]), -1).flatten(-2)
    else:
        quarter = torch.cat((-turning[..., width // 2 :], turning[..., : width // 2]), -1)
    turned = turning * cos.float().unsqueeze(-3) + quarter * sin.float().unsqueeze(-3)
    return torch.cat((turned.to(x.dtype), rest), -1)


@scripted
def rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> Tuple[torch.Tensor, torch.Tensor]:  # noqa: UP006
    """q and k rotated, computed in float32 and returned in their dtype."""
    return _rotated(q, cos, sin, interleaved), _rotated(k, cos, sin, interleaved)
