"""The definition of layer_norm in plain torch; the ground truth when called in float64."""

import torch

from kernelyard.kernels.norms.shapes import broadcast, span


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    count: int,
    dim: int,
) -> torch.Tensor:
    """Distance from the mean over the standard deviation, along the `count` dims that end at `dim`."""
    dims = list(range(*span(x, count, dim)))
    centred = x - x.mean(dims, keepdim=True)
    y = centred / (centred.square().mean(dims, keepdim=True) + eps).sqrt()
    if weight is not None:
        y = y * broadcast(weight, x, dim)
    return y if bias is None else y + broadcast(bias, x, dim)
