"""The definition of rotary position embedding in plain torch; the ground truth when called in float64."""

import torch


def rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """x cos + (x turned by a quarter) sin over the first R elements of each head, the rest as it is."""
    return _rotated(q, cos, sin, interleaved), _rotated(k, cos, sin, interleaved)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    width = cos.shape[-1]
    turning, rest = x[..., :width], x[..., width:]
    if interleaved:
        quarter = torch.stack((-turning[..., 1::2], turning[..., ::2]), -1).flatten(-2)
    else:
        quarter = torch.cat((-turning[..., width // 2 :], turning[..., : width // 2]), -1)
    turned = turning * cos.unsqueeze(-3) + quarter * sin.unsqueeze(-3)
    return torch.cat((turned.to(x.dtype), rest), -1)
