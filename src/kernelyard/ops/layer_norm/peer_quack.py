"""QuACK's layer norm: its forward and backward, which it does not join for autograd; that is done here."""

from typing import Any

import torch
from quack.rmsnorm import layernorm_bwd, layernorm_fwd

from kernelyard.kernels.norms.shapes import rows_refusal
from kernelyard.kernels.support import cuda_refusal, dtype_refusal

VECTOR = 16
"""Bytes that a row has to be a multiple of."""


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> str | None:
    """Why QuACK does not take the input, or None."""
    if weight is None:
        return "takes a weight"
    if x.dim() and x.shape[-1] * x.element_size() % VECTOR:
        return f"takes rows of a multiple of {VECTOR} bytes"
    return rows_refusal(x, count, dim) or cuda_refusal(x) or dtype_refusal(x, weight, bias)


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
        # It takes float32 parameters alone: a conversion of N elements, beside M x N.
        wide = weight.float()
        y, rstd, mean = layernorm_fwd(x, wide, None if bias is None else bias.float(), eps, True, True)
        ctx.save_for_backward(x, wide, rstd, mean)
        ctx.bias, ctx.dtype = bias is not None, weight.dtype
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        x, wide, rstd, mean = ctx.saved_tensors
        dx, dweight, dbias = layernorm_bwd(x, wide, grads[0].contiguous(), rstd, mean, ctx.bias)
        return dx, dweight.to(ctx.dtype), None if dbias is None else dbias.to(ctx.dtype), None


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> torch.Tensor:
    """Layer norm of `x` over its last dim, which QuACK gets as a matrix."""
    return _LayerNorm.apply(x.reshape(-1, x.shape[-1]), weight, bias, eps).view(x.shape)
