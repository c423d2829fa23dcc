"""The TorchScript rung: the written-out formula, scripted. Deprecated in torch; kept as a step of the ladder."""

import torch

from kernelyard.kernels.scripted import script_refusal, scripted
from kernelyard.kernels.support import dtype_refusal


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return dtype_refusal(x, weight, bias) or script_refusal()


@scripted
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> torch.Tensor:
    """Layer norm of `x` over the `count` dims that end at `dim`, in float32, returned in x's dtype."""
    end = dim % x.dim() + 1
    dims = [i for i in range(end - count, end)]  # noqa: C416 - TorchScript has no list(range)
    wide = x.float()
    centred = wide - wide.mean(dims, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)
    behind = [1 for _ in range(x.dim() - end)]
    if weight is not None:
        y = y * weight.float().reshape(list(weight.shape) + behind)
    if bias is not None:
        y = y + bias.float().reshape(list(bias.shape) + behind)
    return y.to(x.dtype).contiguous()
