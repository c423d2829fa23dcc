"""One measurement at a time on a GPU: whoever times there has it alone, and those who only prove share it."""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from kernelyard.core.errors import UsageError
from kernelyard.sandbox.health import identity

_LOOK_SECONDS = 0.05


class NoTurn(UsageError):
    """The device was not free in time."""


@contextlib.contextmanager
def turn(device: torch.device, seconds: float, folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold `device` against other processes and threads of this machine. Raises NoTurn after `seconds`.

    A `shared` turn is for work that nobody times: others may share the device, and no one has it alone meanwhile.
    The lock is the kernel's, on a file in `folder`, and goes with its holder. The CPU is shared.
    """
    if device.type == "cpu":
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{identity(device)}.lock").open("w") as file:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise NoTurn(f"expected {device} to be free of other runs within {seconds:g} s") from None
                time.sleep(_LOOK_SECONDS)
        yield
