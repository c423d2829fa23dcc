"""What tells one call of a function that is compiled for exact shapes from another."""

from typing import Any

import torch


def call_key(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Hashable, and equal for calls that the same compiled code serves."""
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *map(_one, arguments))


def _one(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return argument
    return argument.shape, argument.stride(), argument.dtype, argument.device, argument.requires_grad
