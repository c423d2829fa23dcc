"""A sandboxed process that runs a line of Python, within limits that a test can reach."""

import sys
import time

from kernelyard.sandbox.launch import SandboxedProcess, SandboxKind, launch
from kernelyard.sandbox.limits import MIB, Limits

LIMITS = Limits(memory_bytes=256 * MIB, processes=64, file_bytes=8 * MIB, output_bytes=MIB)
SECONDS = 20.0


def start(kind: SandboxKind, code: str, *arguments: str, inherit: tuple[int, ...] = ()) -> SandboxedProcess:
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    return launch(command, kind=kind, limits=LIMITS, inherit=inherit)


def assert_next_works(kind: SandboxKind) -> None:
    with start(kind, "print('next')") as process:
        assert process.wait(SECONDS) == 0
        assert process.stdout == "next\n"


def wait_for(condition: object, seconds: float = SECONDS) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
