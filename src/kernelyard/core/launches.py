"""Which GPU kernels a call launches, by name.

CUPTI calls back at every call of the driver, which names the kernel: on any stream, whatever the call waits for. What a
CUDA graph replays has no such call of its own; that, and AMD's kernels, torch's profiler names, where it can. It rests
on CUPTI's records, and on an H100 machine of 2026 those held no kernel in most processes.
"""

import ctypes
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

Way = Literal["callbacks", "profiler"]

# Of cupti_callbacks.h.
_DRIVER_CALLS = 1
_ON_ENTRY = 0


class Unseen(Exception):
    """What the call launches cannot be seen; the message says why."""


@dataclass(frozen=True)
class Launches:
    """What one call launched, an entry a launch, and how that was seen."""

    names: tuple[str, ...]
    way: Way


def launches(call: Callable[[], object], device: torch.device) -> Launches:
    """What one more call launches on `device`, an NVIDIA or AMD GPU. Calls it twice where the first tells too little.

    Raises Unseen, and whatever the call raises.
    """
    seen = _called_back(call, device)
    if isinstance(seen, list):
        return Launches(tuple(seen), "callbacks")
    if names := _profiled(call, device):
        return Launches(tuple(names), "profiler")
    raise Unseen(f"{seen}, and torch's profiler sees nothing")


class _Call(ctypes.Structure):
    """The beginning of CUpti_CallbackData."""

    _fields_ = (
        ("site", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p),
        ("returned", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
    )


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_Call))


def _called_back(call: Callable[[], object], device: torch.device) -> list[str] | str:
    """Names of the kernels, or why they are not all of them."""
    cupti = _cupti()
    if cupti is None:
        return "no CUPTI in the process"
    names: list[str] = []
    graphs = 0

    @_CALLBACK
    def note(_user: Any, _domain: int, _number: int, data: Any) -> None:
        nonlocal graphs
        made = data.contents
        if made.site != _ON_ENTRY:
            return
        if made.function.startswith(b"cuGraphLaunch"):
            graphs += 1
        elif b"Launch" in made.function and made.symbol:
            names.append(torch._C._demangle(made.symbol.decode(errors="replace")))

    subscriber = ctypes.c_void_p()
    if error := cupti.cuptiSubscribe(ctypes.byref(subscriber), note, None):
        return f"CUPTI has another subscriber (error {error})"
    try:
        cupti.cuptiEnableDomain(1, subscriber, _DRIVER_CALLS)
        call()
        torch.cuda.synchronize(device)
    finally:
        cupti.cuptiUnsubscribe(subscriber)
    if graphs:
        return "it replays a CUDA graph"
    return names or "it launches no kernel"


def _cupti() -> ctypes.CDLL | None:
    """CUPTI as torch brought it into the process."""
    found = re.search(r"\S*/libcupti\.so\S*$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return ctypes.CDLL(found.group()) if found else None


def _profiled(call: Callable[[], object], device: torch.device) -> list[str]:
    with warnings.catch_warnings():
        # torch 2.11 warns about profiles of many cycles, which this is not.
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            call()
            torch.cuda.synchronize(device)
    return [event.name for event in profiler.events() if event.device_type is torch.autograd.DeviceType.CUDA]
