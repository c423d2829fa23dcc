"""How heads, tokens and tables lie in memory: what a call's shapes have to be, and what kernels read of them."""

from collections.abc import Sequence

import torch

from kernelyard.core.workload import dtype_name
from kernelyard.kernels.support import dtype_refusal


def shape_error(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> str | None:
    """What is wrong with the shapes of a call, or None."""
    if q.dim() != 4 or k.dim() != 4:
        return f"q and k are (B, H, T, D), not {_size(q)} and {_size(k)}"
    batch, _, tokens, width = q.shape
    if (k.shape[0], k.shape[2], k.shape[3]) != (batch, tokens, width):
        return f"q and k differ in their heads alone, not as {_size(q)} and {_size(k)} do"
    if cos.shape != sin.shape:
        return f"cos and sin have one shape, not {_size(cos)} and {_size(sin)}"
    if cos.dim() not in (2, 3) or cos.shape[-2] != tokens or (cos.dim() == 3 and cos.shape[0] not in (1, batch)):
        return f"cos and sin are (T, R) or (B, T, R), not {_size(cos)} for q of {_size(q)}"
    rotated = cos.shape[-1]
    if width % 2 or rotated % 2 or rotated > width:
        return f"a head's size and how much of it is rotated are even, not {width} and {rotated} of it"
    return None


def refusal_of_dtypes(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> str | None:
    """Why the kernels do not take the dtypes, or None."""
    if q.dtype != k.dtype or cos.dtype != sin.dtype or cos.dtype not in (torch.float32, q.dtype):
        names = " ".join(dtype_name(tensor.dtype) for tensor in (q, k, cos, sin))
        return f"takes q and k of one dtype, cos and sin in that or float32, not {names}"
    return dtype_refusal(q)


def learned_refusal(cos: torch.Tensor, sin: torch.Tensor) -> str | None:
    """Why the kernels, whose backward is that of q and k alone, do not take tables that are trained, or None."""
    if (cos.requires_grad or sin.requires_grad) and torch.is_grad_enabled():
        return "gives cos and sin no gradient, which one of them wants"
    return None


def by_token(x: torch.Tensor) -> bool:
    """Whether the heads of a token lie closer than the tokens of a head: (B, T, H, D) in memory."""
    return x.stride(1) < x.stride(2)


def empty(like: torch.Tensor, shape: Sequence[int], tokens_first: bool) -> torch.Tensor:
    """A fresh (B, H, T, D) of `like`'s dtype and device, dense in either order of memory."""
    if not tokens_first:
        return like.new_empty(shape)
    batch, heads, tokens, width = shape
    return like.new_empty((batch, tokens, heads, width)).transpose(1, 2)


def readable(x: torch.Tensor) -> torch.Tensor:
    """x, or a copy of it where the elements of a head do not lie side by side."""
    return x if x.stride(3) == 1 else x.contiguous()


def tables(cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int]]:
    """cos, sin and their strides over batches (0 where all share one) and tokens, which are the same for both."""
    if cos.stride() != sin.stride() or cos.stride(-1) != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
    return cos, sin, (cos.stride(0) if cos.dim() == 3 and cos.shape[0] > 1 else 0, cos.stride(-2))


def _size(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a scalar"
