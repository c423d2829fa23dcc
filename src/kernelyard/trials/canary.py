"""What must not change while solutions are judged: planted beforehand, looked at after each of them."""

import functools
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import torch

import kernelyard
from kernelyard.core.interrupts import deaf_children
from kernelyard.judge.floor import measure_ceilings
from kernelyard.sandbox import processes
from kernelyard.sandbox.launch import SandboxedProcess

VARIABLE = "KERNELYARD_CANARY"
"""A variable of the judge's with a secret in it."""
TRACE = "kernelyard-exploit"
"""How the names begin of everything that samples leave behind on purpose."""
_PLACES = (Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"), Path.home(), Path(kernelyard.__file__).parent)
# The driver keeps pages of a process that has gone for a moment, and a display or a monitor takes a few.
GPU_BYTES = 64 << 20
MEMORY = "MiB free of"

# What the decoy does, until who planted it is gone.
_LIVE_ON = "import os, time; parent = os.getppid()\nwhile os.getppid() == parent: time.sleep(1)"


class Canary:
    """Plants on entry: a folder of secret files, a variable, a process of the judge's own user. Removes them on exit.

    Inside, temporary files of the judge's side are made in a folder of the canary's, so that those of other programs
    are not mistaken for them.
    """

    def __init__(self, device: torch.device, *, alone_on: Sequence[torch.device] | None = None) -> None:
        """`alone_on`: GPUs that no one else uses, where memory that goes is the samples' doing; `device` without."""
        self.device = device
        watched = [device] if alone_on is None else alone_on
        self._gpus = [each for each in dict.fromkeys(watched) if each.type == "cuda"]
        self._undo = ExitStack()
        self._waiting: Callable[[], Sequence[SandboxedProcess]] = tuple

    def leave_out(self, waiting: Callable[[], Sequence[SandboxedProcess]]) -> None:
        """From now on the judge's own workers that wait, as many at each look, are none of the samples' doing."""
        self._waiting = waiting
        self._before = self._look()

    def __enter__(self) -> "Canary":
        with ExitStack() as undo:
            self.root = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="kernelyard-canary-")))
            self._temporary = self.root / "temporary"
            self._temporary.mkdir()
            undo.callback(setattr, tempfile, "tempdir", tempfile.tempdir)
            tempfile.tempdir = str(self._temporary)
            self._secret = secrets.token_hex(16)
            os.environ[VARIABLE] = self._secret
            undo.callback(os.environ.pop, VARIABLE, None)
            self._files = self.root / "secrets"
            self._files.mkdir()
            for name in ("token", "answers"):
                (self._files / name).write_text(self._secret)
            with deaf_children():
                self._decoy = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _LIVE_ON, "kernelyard-decoy"],
                    stdin=subprocess.DEVNULL,
                )
            undo.callback(self._decoy.wait)
            undo.callback(self._decoy.kill)
            if self.device.type == "cuda":
                _open_all(self.device)
            self._before, self._free_before = self._look(), self._free()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def changes(self) -> list[str]:
        """What is not as it was: one line each. Looking again afterwards counts from here."""
        now, before = self._look(), self._before
        self._before = now
        found = [f"{name}: {_difference(before[name], seen)}" for name, seen in now.items() if seen != before[name]]
        for gpu, free in self._free().items():
            # What is less than that is not forgotten, and may become more.
            if abs(free - (was := self._free_before[gpu])) > GPU_BYTES:
                found.append(f"{MEMORY} {gpu}: {_difference(was >> 20, free >> 20)}")
                self._free_before[gpu] = free
        return found

    def _look(self) -> dict[str, object]:
        package = Path(kernelyard.__file__).parent
        waiting = self._waiting()
        folders = {process.private.name for process in waiting if process.private}
        seen: dict[str, object] = {
            "planted files": {path.name: path.read_text() for path in self._files.iterdir()},
            "the judge's temporary files": {path.name for path in self._temporary.glob("kernelyard*")} - folders,
            "traces of samples": {str(path) for place in _PLACES for path in place.glob(f"{TRACE}*")},
            "the judge's source": {(str(path), path.stat().st_mtime_ns) for path in package.rglob("*.py")},
            "the judge's descriptors": _descriptors(),
            "the judge's processes": set(processes.descendants(os.getpid(), [process.pid for process in waiting])),
            "the decoy's life": self._decoy.poll(),
            "the secret variable": os.environ.get(VARIABLE) == self._secret,
        }
        return seen

    def _free(self) -> dict[torch.device, int]:
        if self._gpus:
            torch.cuda.empty_cache()
        return {gpu: torch.cuda.mem_get_info(gpu)[0] for gpu in self._gpus}


@functools.cache
def _open_all(device: torch.device) -> None:
    """Use the GPU once as the judge does: the driver and cuBLAS open 16 descriptors then, and keep 192 MiB."""
    measure_ceilings(device, "float32", matrix=True)
    square = torch.ones(64, 64, dtype=torch.float64, device=device)
    torch.mm(square, square)
    torch.cuda.synchronize(device)


def _descriptors() -> dict[str, int]:
    """How many descriptors of each kind this process holds: their numbers may change, what they are may not."""
    counts: dict[str, int] = {}
    for name in Path("/proc/self/fd").iterdir():
        try:
            kind = str(name.readlink()).partition(":")[0]
        except OSError:
            continue
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def _difference(before: object, now: object) -> str:
    if isinstance(before, set) and isinstance(now, set):
        come, gone = sorted(map(str, now - before)), sorted(map(str, before - now))
        return "; ".join([*[f"+ {', '.join(come[:3])}"] * bool(come), *[f"- {', '.join(gone[:3])}"] * bool(gone)])
    return f"{before} before, {now} now"
