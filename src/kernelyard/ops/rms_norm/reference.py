"""The definition of rms_norm in plain torch; the ground truth when called in float64."""

import torch

from kernelyard.kernels.norms.shapes import broadcast, result_dtype, span


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    offset: float,
    casting: str,
    count: int,
    dim: int,
) -> torch.Tensor:
    """x over its root mean square along the `count` dims that end at `dim`; `casting` only gives the result's dtype."""
    dims = list(range(*span(x, count, dim)))
    y = x / (x.square().mean(dims, keepdim=True) + eps).sqrt()
    if weight is not None:
        y = y * (offset + broadcast(weight, x, dim))
    return y.to(result_dtype(x, weight, casting))
