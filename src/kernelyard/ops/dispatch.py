"""Which backend a public call runs on."""

import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.kernels.prepared import derivative_refusal
from kernelyard.ops.discovery import backend_module, backends

_log = logging.getLogger("kernelyard.ops")
_FASTEST = (Backend.CUDA, Backend.TRITON)
_KERNELS = [backend.value for backend in _FASTEST]
_loaded: set[tuple[str, str]] = set()
_said: set[tuple[str, str, str]] = set()
_accepted: dict[str, tuple[Callable[..., str | None], Callable[..., Any]]] = {}
"""`refusal` and function of each CUDA backend that has served a call: it is asked first, in little host time."""


def implementation(op: str, backend: Backend | str | None, x: torch.Tensor, *others: Any) -> Callable[..., Any]:
    """The function to call for `op(x, *others)`: the named backend's, or the fastest that takes the input.

    Eager is the declared fallback of a call that names no backend; a log line says so once for each reason, of a call
    that is traced too. Raises UsageError where a named backend does not exist or refuses the input, or nothing takes
    it.
    """
    transformed = derivative_refusal()
    if backend is None and op in _accepted and transformed is None:
        refusal, function = _accepted[op]
        if refusal(x, *others) is None:
            return function
    if backend is not None:
        return _named(op, str(getattr(backend, "value", backend)), transformed, x, *others)
    reasons = []
    if x.device.type != "cpu":
        for candidate in _FASTEST:
            if not _exists(op, candidate.value):
                continue
            reason = _load(op, candidate.value) or transformed
            if reason is None:
                module = _module(op, candidate.value)
                reason = module.refusal(x, *others)
            if reason is None:
                if candidate is Backend.CUDA and not torch.compiler.is_compiling():
                    _accepted[op] = module.refusal, getattr(module, op)
                return getattr(module, op)
            reasons.append(f"{candidate.value} {reason}")
    function = _named(op, Backend.EAGER.value, None, x, *others)
    _say_once(op, x.device.type, "; ".join(reasons) or "no kernel runs on a CPU")
    return function


def _named(op: str, backend: str, transformed: str | None, x: torch.Tensor, *others: Any) -> Callable[..., Any]:
    """The named backend's function for the input; raises UsageError where it refuses it."""
    reason = _load(op, backend) or (None if backend == Backend.EAGER.value else transformed)
    if reason is None:
        reason = _module(op, backend).refusal(x, *others)
    if reason is not None:
        raise UsageError(f"the {backend} backend of {op} does not take this input: {reason}")
    function = getattr(_module(op, backend), op)
    if backend not in _KERNELS and _has_autocast(x.device.type) and torch.is_autocast_enabled(x.device.type):
        return _without_autocast(function, x.device.type)
    return function


def _has_autocast(device_type: str) -> bool:
    """Whether one may ask at all: of meta tensors, say, torch raises."""
    return torch.amp.is_autocast_available(device_type)


def _without_autocast(function: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    """`function` for whose operators autocast would choose other dtypes than the input's, which no kernel does."""

    def call(*arguments: Any) -> Any:
        with torch.autocast(device_type, enabled=False):
            return function(*arguments)

    return call


def _module(op: str, backend: str) -> ModuleType:
    return sys.modules[f"kernelyard.ops.{op}.{backend}"]


def _exists(op: str, backend: str) -> bool:
    return backend in backends(op)


def _load(op: str, backend: str) -> str | None:
    """Imports the backend; why that cannot be done here, or None."""
    if (op, backend) not in _loaded:
        try:
            backend_module(op, backend)
        except ModuleNotFoundError as error:
            return f"needs the package {error.name}, which is not installed"
        _loaded.add((op, backend))
    return None


def _say_once(op: str, device_type: str, why: str) -> None:
    if (op, device_type, why) not in _said:
        _said.add((op, device_type, why))
        _log.warning("%s on %s runs torch's eager implementation: %s", op, device_type, why)


# What torch.compiler.assume_constant_result sets, without its import of Dynamo (a second): Dynamo runs the import, and
# says what is to be said, when it traces a call, instead of tracing into it (torch 2.11 cannot into _has_autocast's).
_load._dynamo_marked_constant = _exists._dynamo_marked_constant = True  # type: ignore[attr-defined]
_say_once._dynamo_marked_constant = _has_autocast._dynamo_marked_constant = True  # type: ignore[attr-defined]
