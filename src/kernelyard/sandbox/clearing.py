"""When a device has cleared what this process gave back to it.

The driver clears freed memory at once, 2.5 ms a GB on an H100 however much it is, and what else runs meanwhile has a
sixth less of the bandwidth: after 8, 16, 32 and 48 GB, copies of 2.15 ms took 2.50 for 20, 41, 82 and 122 ms, whoever
had freed it. To have memory costs nothing of the kind (2026-11-25, driver 580.159).
"""

import time

import torch

BYTES_A_SECOND = 3.3e11
"""Five sixths of what was measured: 3 ms a GB."""

_clear: dict[tuple[str, int], float] = {}
"""By device, on the monotonic clock."""


def gave_back(size: int, device: torch.device) -> None:
    """So many bytes of the device were freed just now."""
    _clear[_place(device)] = time.monotonic() + seconds_until_clear(device) + size / BYTES_A_SECOND


def empty_cache(device: torch.device) -> None:
    """Give back what this process's allocator keeps of a GPU for itself."""
    reserved = torch.cuda.memory_reserved(device)
    torch.cuda.empty_cache()
    gave_back(reserved - torch.cuda.memory_reserved(device), device)


def seconds_until_clear(device: torch.device) -> float:
    """How long to leave the device alone before anything is timed on it."""
    return max(0.0, _clear.get(_place(device), 0.0) - time.monotonic())


def _place(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0
