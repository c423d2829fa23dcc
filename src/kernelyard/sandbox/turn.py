"""One measurement at a time on a GPU: whoever times there has it alone, and those who only prove share it."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.folders import state_folder
from kernelyard.sandbox.health import Ward, identity

_LOOK_SECONDS = 0.05
# On a loaded machine a look may be late by a second or so.
_SUSPENDED_SECONDS = 10.0


class NoTurn(UsageError):
    """The device was not free in time."""


@contextlib.contextmanager
def turn(device: torch.device, seconds: float, folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold `device` against other processes and threads of this machine. Raises NoTurn after `seconds`.

    A `shared` turn is for work that nobody times: others may share the device, and no one has it alone meanwhile.
    The lock is the kernel's, on a file in `folder`, and goes with its holder. Who came first has it first: of ten
    judges that merely tried again one waited 350 s for turns of 5 s. The CPU is shared.
    """
    if device.type == "cpu":
        yield
        return
    line = folder / f"{identity(device)}.line"
    line.mkdir(parents=True, exist_ok=True)
    with (folder / f"{identity(device)}.lock").open("w") as file:
        with _place_in(line) as place:
            deadline = time.monotonic() + seconds
            while not (_is_first(place) and _locked(file, shared=shared)):
                place.touch()
                if time.monotonic() > deadline:
                    raise NoTurn(f"expected {device} to be free of other runs within {seconds:g} s")
                time.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            # A process that was forked meanwhile has the file too: a compiler's kept an H100 for 35 s.
            fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def _place_in(line: Path) -> Iterator[Path]:
    """A file named by when it came, locked as long as somebody stands there and touched as long as he looks."""
    place = line / f"{time.monotonic_ns():020d}-{os.getpid()}-{threading.get_ident()}"
    # Under another name until it is locked: who comes next would take it for one that nobody holds.
    unseen = place.with_name(f".{place.name}")
    with unseen.open("w") as file:
        try:
            _locked(file)
            unseen.rename(place)
            yield place
        finally:
            unseen.unlink(missing_ok=True)
            place.unlink(missing_ok=True)


def _is_first(place: Path) -> bool:
    """Whether nobody stands before it. Places that nobody holds any more are taken away; who is suspended is passed."""
    for before in sorted(other for other in place.parent.glob("[0-9]*") if other.name < place.name):
        with contextlib.suppress(FileNotFoundError), before.open() as file:
            if not _locked(file):
                if time.time() - before.stat().st_mtime > _SUSPENDED_SECONDS:
                    continue
                return False
            before.unlink(missing_ok=True)
    return True


def _locked(file: IO[str], *, shared: bool = False) -> bool:
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def look_alone(ward: Ward, device: torch.device, after: str, seconds: float) -> None:
    """Have `ward` look at `device` in a turn of its own: another's memory would be taken for what was left behind.

    A look that has no turn after `seconds`, or cannot be made, costs nobody a verdict.
    """
    with contextlib.suppress(NoTurn, OSError):
        ward.look(device, after, turn(device, seconds, state_folder()))
