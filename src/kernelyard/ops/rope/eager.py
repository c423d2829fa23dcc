"""The eager rung: the formula as transformers writes it, operator by operator. It is the honest baseline."""

import torch

from kernelyard.kernels.support import floating_refusal


def refusal(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> str | None:
    """Why this backend does not take the input, or None."""
    return floating_refusal(q, k, cos, sin)


def rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k rotated; in the dtype that torch gives x * cos, then that of x."""
    cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)
    return _rotated(q, cos, sin, interleaved), _rotated(k, cos, sin, interleaved)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    width = cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat((_rotated(x[..., :width], cos, sin, interleaved), x[..., width:]), -1)
    if interleaved:
        quarter = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    else:
        quarter = torch.cat((-x[..., width // 2 :], x[..., : width // 2]), -1)
    return (x * cos + quarter * sin).to(x.dtype)
