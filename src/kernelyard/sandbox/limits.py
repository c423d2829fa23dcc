"""What one sandboxed process tree may use."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Bounds on one process tree. Time is not among them: the judge holds the deadline and calls `kill`.

    `memory_bytes`: anonymous and shared memory resident in the whole tree. Watched by polling and not by
    RLIMIT_AS, because CUDA reserves virtual ranges many times larger than what it uses.

    `processes`: tasks (threads count) in the whole tree; a fork bomb starves the judge of its own core.

    `file_bytes`: the largest single file, memfd included (RLIMIT_FSIZE), and under bubblewrap the size of each
    of the two writable tmpfs (`/tmp`, `/dev/shm`); under native all of the private directory, watched.

    `output_bytes`: stdout and stderr together; beyond it the tree is killed as a flood.

    `open_files`: RLIMIT_NOFILE; descriptors pin kernel memory that no other limit sees.
    """

    memory_bytes: int = 16 * GIB
    processes: int = 2048
    file_bytes: int = 2 * GIB
    output_bytes: int = 16 * MIB
    open_files: int = 16384
