"""The watcher: one thread per sandboxed process that drains its output and kills it when it takes too much."""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from kernelyard.sandbox import processes
from kernelyard.sandbox.limits import Limits

Exceeded = Literal["memory", "processes", "files", "output"]

KEPT_BYTES = 64 << 10
# At 3 GB/s 75 MB are taken between two looks; a look costs 0.6 ms where /proc holds 75 processes.
LOOK_SECONDS = 0.025
_LOOKS_PER_FILE_WALK = 10
_WALK_ENTRIES = 100_000


class Text:
    """The first and the last `KEPT_BYTES` of a stream of any length."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Append `data`, dropping from the middle."""
        room = KEPT_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > KEPT_BYTES:
            self._dropped += len(self._tail) - KEPT_BYTES
            self._tail = self._tail[-KEPT_BYTES:]

    def __str__(self) -> str:
        gap = f"\n[... {self._dropped} bytes dropped ...]\n".encode() if self._dropped else b""
        return (self._head + gap + self._tail).decode("utf-8", "replace")


class Watcher:
    """Watches the descendants of `keeper` and the two streams until `ended`; calls `kill` once at the first excess.

    `exceeded` says which limit that was; `peak_memory_bytes` is the largest sum seen at a look. `private` is a
    directory whose size counts against `file_bytes`, or None where a tmpfs bounds it.
    """

    def __init__(
        self,
        *,
        keeper: int,
        streams: tuple[int, int],
        limits: Limits,
        private: Path | None,
        ended: Callable[[], bool],
        kill: Callable[[], None],
    ) -> None:
        self.stdout = Text()
        self.stderr = Text()
        self.exceeded: Exceeded | None = None
        self.peak_memory_bytes = 0
        self._keeper = keeper
        self._texts = dict(zip(streams, (self.stdout, self.stderr), strict=True))
        self._limits = limits
        self._private = private
        self._ended = ended
        self._kill = kill
        self._output_bytes = 0
        self._looks = 0
        self._memfd_bytes = 0
        self._thread = threading.Thread(target=self._run, name=f"watch-{keeper}", daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until the streams are read to their ends; `timeout` in seconds."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self._texts:
                os.set_blocking(stream, False)
                selector.register(stream, selectors.EVENT_READ)
            look_at = 0.0
            while not self._ended():
                if time.monotonic() >= look_at:
                    self._look()
                    look_at = time.monotonic() + LOOK_SECONDS
                self._drain(selector, max(look_at - time.monotonic(), 0))
            # Everyone who could write is gone, so what a pipe still holds is the end.
            while selector.get_map() and self._drain(selector, 0):
                pass
            for stream in self._texts:
                os.close(stream)

    def _drain(self, selector: selectors.BaseSelector, timeout: float) -> bool:
        """Read what is there, waiting `timeout` seconds for the first byte; False if there was nothing."""
        if not selector.get_map():
            time.sleep(timeout)
            return False
        ready = selector.select(timeout)
        for key, _ in ready:
            data = os.read(key.fd, 1 << 16)
            if not data:
                selector.unregister(key.fd)
                continue
            self._texts[key.fd].add(data)
            self._output_bytes += len(data)
        if self._output_bytes > self._limits.output_bytes:
            self._stop("output")
        return bool(ready)

    def _look(self) -> None:
        pids = processes.descendants(self._keeper)
        if self._looks % _LOOKS_PER_FILE_WALK == 0:
            self._memfd_bytes = processes.memfd_bytes(pids)
            if _size(self._private) > self._limits.file_bytes:
                self._stop("files")
        self._looks += 1
        used = processes.usage(pids)
        # Before the memory, whose maps take milliseconds a process: 600 that forked were never counted on a loaded
        # machine, because the look that began with 30 of them had yet to end.
        if used.tasks > self._limits.processes:
            self._stop("processes")
            return
        memory = self._memory(used)
        if memory > self._limits.memory_bytes:
            memory = min(memory, self._memory(processes.proportional_usage(pids)))
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory)
        if memory > self._limits.memory_bytes:
            self._stop("memory")

    def _memory(self, used: processes.Usage) -> int:
        """A memory file that is mapped is in both terms of the maximum, one that is only written to in the second."""
        return used.private_bytes + max(used.shared_bytes, self._memfd_bytes)

    def _stop(self, limit: Exceeded) -> None:
        if self.exceeded is None:
            self.exceeded = limit
            self._kill()


def _size(directory: Path | None) -> int:
    """Bytes on disk under `directory`, whose owner may be changing it; 4 KiB for every entry at least, so that a
    million empty files count too."""
    total = entries = 0
    waiting = [] if directory is None else [str(directory)]
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
