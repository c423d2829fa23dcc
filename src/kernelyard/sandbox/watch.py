"""What a sandboxed tree takes, looked at by its keeper.

Not by the judge: its looks, of four workers, every 25 ms, stood between its main thread and the interpreter's lock. On
an H100 a timed request of 43 ms then took 1.7 ms more or less from one to the next, up to 28, and 0.6 without them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Literal

from kernelyard.sandbox import processes
from kernelyard.sandbox.limits import Limits

# Of the last two one is the judge's to see, and one is no limit: whoever looks has failed.
Exceeded = Literal["memory", "processes", "files", "output", "keeper"]

# At 3 GB/s 75 MB are taken between two looks; a look costs 0.5 ms where /proc holds 67 processes.
LOOK_SECONDS = 0.025
_LOOKS_PER_FILE_WALK = 10
_WALK_ENTRIES = 100_000
# That a tree may hold open, for they are looked at one by one: 400 processes with 16000 each took over half a minute.
_DESCRIPTORS = 50_000
# Between two counts of the tree's tasks, where a look at its memory takes that long.
_COUNT_SECONDS = 0.1


class _Crowded(Exception):
    """The tree has come to have too many tasks."""


class Watch:
    """Looks at the descendants of `keeper`, whoever that is.

    `peak_memory_bytes` is the largest sum seen at a look. `private` is a directory whose size counts against
    `file_bytes`, or None where a tmpfs bounds it.
    """

    def __init__(self, keeper: int, limits: Limits, private: str | None) -> None:
        self.peak_memory_bytes = 0
        self._keeper = keeper
        self._limits = limits
        self._private = private
        self._looks = 0
        self._memfd_bytes = 0

    def look(self) -> Exceeded | None:
        """The limit that the tree is above now, if it is."""
        pids = processes.descendants(self._keeper)
        if self._looks % _LOOKS_PER_FILE_WALK == 0:
            in_files = processes.memfd_bytes(pids, _DESCRIPTORS)
            if in_files is None:
                return "files"
            self._memfd_bytes = in_files
            if _size(self._private) > self._limits.file_bytes:
                return "files"
        self._looks += 1
        used = processes.usage(pids)
        # Before the memory, whose maps take milliseconds a process: 600 that forked were never counted on a loaded
        # machine, because the look that began with 30 of them had yet to end.
        if used.tasks > self._limits.processes:
            return "processes"
        memory = self._memory(used)
        if memory > self._limits.memory_bytes:
            try:
                memory = min(memory, self._memory(processes.proportional_usage(self._while_few(pids))))
            except _Crowded:
                return "processes"
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory)
        return "memory" if memory > self._limits.memory_bytes else None

    def _while_few(self, pids: Sequence[int]) -> Iterator[int]:
        """`pids`, as long as there are not too many tasks; raises _Crowded when there are.

        To walk the maps of hundreds that fork from one of torch's takes seconds, on a loaded machine more than a
        deadline.
        """
        count_at = time.monotonic() + _COUNT_SECONDS
        for pid in pids:
            yield pid
            if time.monotonic() > count_at:
                if processes.usage(processes.descendants(self._keeper)).tasks > self._limits.processes:
                    raise _Crowded
                count_at = time.monotonic() + _COUNT_SECONDS

    def last_words(self, exceeded: Exceeded | None) -> bytes:
        """What the judge is told of the tree when that is gone."""
        return json.dumps([exceeded, self.peak_memory_bytes]).encode()

    def _memory(self, used: processes.Usage) -> int:
        """A memory file that is mapped is in both terms of the maximum, one that is only written to in the second."""
        return used.private_bytes + max(used.shared_bytes, self._memfd_bytes)


def _size(directory: str | None) -> int:
    """Bytes on disk under `directory`, whose owner may be changing it; 4 KiB for every entry at least, so that a
    million empty files count too."""
    total = entries = 0
    waiting = [] if directory is None else [directory]
    while waiting and entries < _WALK_ENTRIES:
        try:
            with os.scandir(waiting.pop()) as listing:
                for entry in listing:
                    entries += 1
                    total += max(entry.stat(follow_symlinks=False).st_blocks * 512, 4096)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
    return total
