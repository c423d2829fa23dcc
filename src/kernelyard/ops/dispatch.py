"""Which backend a public call runs on."""

import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.ops.discovery import backend_module, backends

_log = logging.getLogger("kernelyard.ops")
_FASTEST = (Backend.CUDA, Backend.TRITON)
_loaded: set[tuple[str, str]] = set()
_said: set[tuple[str, str]] = set()
_accepted: dict[str, tuple[Callable[..., str | None], Callable[..., Any]]] = {}
"""`refusal` and function of each CUDA backend that has served a call: it is asked first, in little host time."""


def implementation(op: str, backend: Backend | str | None, x: torch.Tensor, *others: Any) -> Callable[..., Any]:
    """The function to call for `op(x, *others)`: the named backend's, or the fastest that takes the input.

    Eager is the declared fallback of a call that names no backend; a log line says so once per device and
    operator. Raises UsageError where a named backend does not exist or refuses the input.
    """
    if backend is None and op in _accepted:
        refusal, function = _accepted[op]
        if refusal(x, *others) is None:
            return function
    if backend is not None:
        module = _module(op, str(getattr(backend, "value", backend)))
        reason = module.refusal(x, *others)
        if reason is not None:
            raise UsageError(
                f"the {module.__name__.rpartition('.')[2]} backend of {op} does not take this input: {reason}"
            )
        return getattr(module, op)
    reasons = []
    if x.device.type != "cpu":
        for candidate in _FASTEST:
            if not _exists(op, candidate.value):
                continue
            module = _module(op, candidate.value)
            reason = module.refusal(x, *others)
            if reason is None:
                if candidate is Backend.CUDA and not torch.compiler.is_compiling():
                    _accepted[op] = module.refusal, getattr(module, op)
                return getattr(module, op)
            reasons.append(f"{candidate.value} {reason}")
    if not torch.compiler.is_compiling():
        _say_once(op, x.device.type, "; ".join(reasons) or "no kernel runs on a CPU")
    return getattr(_module(op, Backend.EAGER.value), op)


def _module(op: str, backend: str) -> ModuleType:
    _load(op, backend)
    return sys.modules[f"kernelyard.ops.{op}.{backend}"]


def _exists(op: str, backend: str) -> bool:
    return backend in backends(op)


def _load(op: str, backend: str) -> None:
    if (op, backend) not in _loaded:
        backend_module(op, backend)
        _loaded.add((op, backend))


# What torch.compiler.assume_constant_result sets, without its import of Dynamo (a second): Dynamo runs the
# import when it traces a call instead of tracing into it.
_load._dynamo_marked_constant = _exists._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _say_once(op: str, device_type: str, why: str) -> None:
    if (op, device_type) not in _said:
        _said.add((op, device_type))
        _log.warning("%s on %s runs torch's eager implementation: %s", op, device_type, why)
