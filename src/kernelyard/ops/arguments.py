"""What every public function asks of its arguments before it looks at their shapes."""

from collections.abc import Mapping
from typing import Any

import torch

from kernelyard.core.errors import UsageError

_NONE: Mapping[str, Any] = {}


def check_tensors(op: str, required: Mapping[str, Any], optional: Mapping[str, Any] = _NONE) -> None:
    """Raises TypeError for an argument that is no tensor, UsageError for one on another device than the first.

    A kernel reads addresses: those of another device would end the process, not the call.
    """
    first, device = "", None
    for arguments in (required, optional):
        for name, value in arguments.items():
            if not isinstance(value, torch.Tensor):
                if value is None and arguments is optional:
                    continue
                raise TypeError(f"{op}: {name} is {_kind(value)}, expected a tensor")
            if device is None:
                first, device = name, value.device
            elif value.device != device:
                raise UsageError(f"{op}: {name} is on {value.device} and {first} on {device}, expected one device")


def _kind(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
