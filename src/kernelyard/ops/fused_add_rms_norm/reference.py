"""The definition of fused_add_rms_norm in plain torch; the ground truth when called in float64."""

import torch

from kernelyard.kernels.norms.shapes import result_dtype


def fused_add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    offset: float,
    casting: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum over its root mean square along the last dim, and the sum; `casting` only gives the first's dtype."""
    total = x + residual
    y = total / (total.square().mean(-1, keepdim=True) + eps).sqrt()
    if weight is not None:
        y = y * (offset + weight)
    return y.to(result_dtype(x, weight, casting)), total
