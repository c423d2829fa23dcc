"""Whether a GPU is fit for the next evaluation: looked at from a new process after every abnormal end.

A candidate that hangs the driver or leaves its memory behind must not become the next candidate's verdict, so a GPU
that fails the look is set aside by a small file, until someone who has seen to it takes the file away.

    python -m kernelyard.sandbox.health DEVICE       the look itself, after a line on stdin; prints one object of JSON
"""

import contextlib
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.folders import state_folder

# torch's import and the driver's start take 5 s on a slow disk; a sick driver takes for ever.
_SECONDS = 60.0
# For a process to go once it is killed; one that a sick driver holds does not.
_GRACE_SECONDS = 5.0
_ELEMENTS = 1 << 20
# Less than this, and what a candidate left behind fills the device: the smallest problem needs more.
_FREE_BYTES = 1 << 30


def probe(device: torch.device, turn: AbstractContextManager[None]) -> str | None:
    """Why `device` is sick, found by a new process; None for a healthy one and for the CPU.

    The process looks within `turn`, and imports torch while that is waited for: on a device that others want, too, the
    import's 3 s were nobody's.
    """
    if device.type == "cpu":
        return None
    command = [sys.executable, "-m", "kernelyard.sandbox.health", str(device)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace")
    try:
        with turn:
            try:
                printed, errors = process.communicate("look\n", timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()  # whoever is next has the device alone
                return f"a small computation did not end within {_SECONDS:.0f} s"
        seen = json.loads(printed)
        right, free_bytes = seen["right"], seen["free_bytes"]
    except (ValueError, TypeError, KeyError):
        tail = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        return f"a small computation failed: {tail[:200]}"
    finally:
        _end(process)
    return judged(right, free_bytes)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the look and wait a moment. One that stays is abandoned: `subprocess` reaps it when it goes after all."""
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    for end in filter(None, (process.stdin, process.stdout, process.stderr)):
        with contextlib.suppress(BrokenPipeError):  # of what it was told and never read
            end.close()


def judged(right: bool, free_bytes: int) -> str | None:
    """What to make of the two observations."""
    if not right:
        return "a small computation came out wrong"
    if free_bytes < _FREE_BYTES:
        return f"only {free_bytes >> 20} MiB are free, {_FREE_BYTES >> 20} expected"
    return None


@dataclass(frozen=True)
class Ward:
    """The devices that are set aside, a file each in `folder`, and how one is examined."""

    folder: Path
    examine: Callable[[torch.device, AbstractContextManager[None]], str | None] = probe

    @classmethod
    def usual(cls) -> "Ward":
        return cls(state_folder() / "quarantine")

    def refusal(self, device: torch.device) -> str | None:
        """One line where `device` is set aside: since when, why, and what to do."""
        try:
            record = json.loads(self._file(device).read_text())
            return f"{device} is set aside since {record['since']}: {record['reason']}; {_CLEAR}"
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise UsageError(f"{self.folder}: no folder can be there; expected one for what is remembered") from None
        except (OSError, ValueError, KeyError, TypeError):
            return f"{device} is set aside; {_CLEAR}"

    def look(self, device: torch.device, after: str, turn: AbstractContextManager[None]) -> str | None:
        """Examine `device` after an abnormal end, within `turn`; a sick one is set aside.

        The reason, or None for a healthy one. Raises what `turn` raises.
        """
        reason = self.examine(device, turn)
        if reason is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            since = datetime.now(timezone.utc).isoformat(timespec="seconds")
            self._file(device).write_text(json.dumps({"since": since, "reason": f"{reason} (after {after})"}) + "\n")
        return reason

    def clear(self, device: torch.device) -> bool:
        """Take `device` back; whether it was set aside."""
        there = self._file(device).exists()
        self._file(device).unlink(missing_ok=True)
        return there

    def _file(self, device: torch.device) -> Path:
        return self.folder / f"{identity(device)}.json"


_CLEAR = "kernelyard doctor --clear-quarantine takes it back"


@functools.cache
def identity(device: torch.device) -> str:
    """A name for the very piece of hardware, whatever it is counted as here."""
    if device.type != "cuda":
        return str(device).replace(":", "-")
    # A GPU that has fallen off the bus still answers this: torch read it when the process started.
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def _look(device: torch.device) -> dict[str, object]:
    numbers = torch.arange(_ELEMENTS, device=device, dtype=torch.float64)
    right = bool((numbers + numbers).sum().item() == _ELEMENTS * (_ELEMENTS - 1))
    product = torch.ones(256, 256, device=device) @ torch.ones(256, 256, device=device)
    right = right and bool((product == 256).all())
    return {"right": right, "free_bytes": torch.get_device_module(device).mem_get_info(device)[0]}


if __name__ == "__main__":
    if not sys.stdin.readline():
        sys.exit("whoever asked for the look is gone, and the turn with it")
    print(json.dumps(_look(torch.device(sys.argv[1]))))
