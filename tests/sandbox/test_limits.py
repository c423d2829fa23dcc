"""What a sandboxed process may take: output, memory, processes, disk and descriptors, and who takes more is ended."""

import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from started import LIMITS, SECONDS, assert_next_works, start

from kernelyard.sandbox import processes
from kernelyard.sandbox.launch import SandboxKind, launch
from kernelyard.sandbox.limits import MIB
from kernelyard.sandbox.listener import KEPT_BYTES
from kernelyard.sandbox.watch import Watch


def test_a_flood_is_stopped_and_cut_in_the_middle(kind: SandboxKind) -> None:
    code = "print('first')\nfor _ in range(64): print('x' * (1 << 20))\nprint('last')"
    with start(kind, code) as process:
        assert process.wait(SECONDS) == -signal.SIGKILL
    assert process.exceeded == "output"
    assert process.stdout.startswith("first\n")
    assert len(process.stdout) < 2 * KEPT_BYTES + 100
    assert "bytes dropped" in process.stdout
    assert_next_works(kind)


def test_much_output_within_the_limit_neither_blocks_nor_kills(kind: SandboxKind) -> None:
    code = "import sys\nfor s in (sys.stdout, sys.stderr): s.write('x' * (400 << 10)); s.write('end')"
    with start(kind, code) as process:
        assert process.wait(SECONDS) == 0
    assert process.exceeded is None
    assert process.stdout.endswith("xend")
    assert process.stderr.endswith("xend")


ALLOCATES = """
kept = []
for _ in range(64):
    kept.append(b"1" * (32 << 20))
import time; time.sleep(20)
"""
ALLOCATES_SHARED = """
import mmap, time
shared = mmap.mmap(-1, 2 << 30)
for _ in range(512):
    shared.write(b"1" * (4 << 20))
time.sleep(20)
"""
WRITES_MEMORY_FILES = """
import os, time
for number in range(256):
    file = os.memfd_create(str(number))
    os.write(file, b"1" * (8 << 20))
time.sleep(20)
"""
ALLOCATES_IN_CHILDREN = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = b"1" * (64 << 20)
        time.sleep(20)
time.sleep(20)
"""


@pytest.mark.parametrize(
    "code",
    [ALLOCATES, ALLOCATES_SHARED, WRITES_MEMORY_FILES, ALLOCATES_IN_CHILDREN],
    ids=["own", "shared", "unmapped", "tree"],
)
def test_memory_is_bounded(kind: SandboxKind, code: str) -> None:
    with start(kind, code) as process:
        assert process.wait(SECONDS) == -signal.SIGKILL
    assert process.exceeded == "memory"
    assert process.peak_memory_bytes > LIMITS.memory_bytes
    assert_next_works(kind)


def test_memory_shared_by_forks_counts_once(kind: SandboxKind) -> None:
    """Eight processes that see the same 64 MiB hold 64 and not 512."""
    code = (
        "import os, time\nkept = b'1' * (64 << 20)\n"
        "children = []\n"
        "for _ in range(8):\n"
        "    child = os.fork()\n"
        "    if child == 0: time.sleep(0.3); os._exit(0)\n"
        "    children.append(child)\n"
        "for child in children: os.waitpid(child, 0)\n"
    )
    with start(kind, code) as process:
        assert process.wait(SECONDS) == 0
    assert process.exceeded is None


def test_a_reserved_range_is_not_memory(kind: SandboxKind) -> None:
    """CUDA reserves far more than it uses; 64 GiB of address space must pass under a limit of 256 MiB."""
    code = "import mmap; mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | 0x4000)"
    with start(kind, code) as process:
        assert process.wait(SECONDS) == 0


def test_forks_are_bounded(kind: SandboxKind) -> None:
    code = (
        "import os, time\n"
        "for count in range(200):\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "    except OSError: print(count); break\n"
        "else: time.sleep(20)"
    )
    with start(kind, code) as process:
        process.wait(SECONDS)
    denied = process.stdout.strip()
    assert process.exceeded == "processes" or int(denied) <= LIMITS.processes
    assert_next_works(kind)


def test_forks_are_counted_before_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """To walk the maps of hundreds takes seconds, in which more of them fork."""
    monkeypatch.setattr(processes, "descendants", lambda _: list(range(65)))
    monkeypatch.setattr(processes, "memfd_bytes", lambda *_: 0)
    monkeypatch.setattr(processes, "usage", lambda pids: processes.Usage(len(pids), 257 * MIB, 0))
    monkeypatch.setattr(processes, "proportional_usage", lambda _: processes.Usage(65, 257 * MIB, 0))
    assert Watch(0, LIMITS, None).look() == "processes"


def test_forks_are_counted_while_their_memory_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that begins with few of them ends when there are too many, and not when all maps are walked."""
    there = [30]
    walked: list[int] = []

    def walk(pids: Iterable[int]) -> processes.Usage:
        for pid in pids:
            time.sleep(0.05)
            walked.append(pid)
            there[0] += 10
        return processes.Usage(1, 0, 0)

    monkeypatch.setattr(processes, "descendants", lambda _: list(range(there[0])))
    monkeypatch.setattr(processes, "memfd_bytes", lambda *_: 0)
    monkeypatch.setattr(processes, "usage", lambda pids: processes.Usage(len(pids), 257 * MIB, 0))
    monkeypatch.setattr(processes, "proportional_usage", walk)
    assert Watch(0, LIMITS, None).look() == "processes"
    assert len(walked) < 30


def test_descriptors_are_counted_before_they_are_looked_at(kind: SandboxKind) -> None:
    """Of 40 processes with thousands each one look took ten seconds, in which nobody could end it."""
    code = (
        "import os, time\n"
        "for _ in range(900): os.dup(0)\n"
        "for _ in range(59):\n"
        "    if os.fork() == 0: break\n"
        "time.sleep(20)"
    )
    limits = replace(LIMITS, processes=128)
    begin = time.monotonic()
    with launch([sys.executable, "-c", code], kind=kind, limits=limits) as process:
        assert process.wait(SECONDS) != 0
    assert process.exceeded == "files" and time.monotonic() - begin < 10


def test_a_tree_that_cannot_be_looked_at_is_ended(kind: SandboxKind, temporary: Path) -> None:
    nowhere_above = replace(LIMITS, memory_bytes=None)  # type: ignore[arg-type]
    with launch([sys.executable, "-c", "import time; time.sleep(30)"], kind=kind, limits=nowhere_above) as process:
        below = processes.descendants(process.pid)
        assert process.wait(SECONDS) != 0
    assert process.exceeded == "keeper"
    assert not any(Path(f"/proc/{pid}").exists() for pid in below)
    assert list(temporary.iterdir()) == []
    assert_next_works(kind)


def test_the_disk_cannot_be_filled(kind: SandboxKind, temporary: Path) -> None:
    code = (
        "import time\n"
        "for number in range(40):\n"
        "    with open(f'file{number}', 'wb') as file: file.write(bytes(4 << 20))\n"
        "time.sleep(20)"
    )
    with start(kind, code) as process:
        assert process.wait(SECONDS) != 0
    assert process.exceeded == "files" or "No space left" in process.stderr
    assert list(temporary.iterdir()) == []
    assert_next_works(kind)
