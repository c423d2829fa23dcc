"""Calls of a function that is compiled for exact shapes: what tells one from another, and which it does not take."""

from typing import Any

import torch

from kernelyard.kernels.prepared import within


def batching_refusal() -> str | None:
    """Why such a function does not take a call made here, or None."""
    return "is not batched by torch.vmap" if within(torch._C._functorch.TransformType.Vmap) else None


def call_key(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Hashable, and equal for calls that the same compiled code serves."""
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *map(_one, arguments))


def _one(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return argument
    return argument.shape, argument.stride(), argument.dtype, argument.device, argument.requires_grad
