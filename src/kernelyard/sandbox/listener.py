"""The listener: one thread of the judge's per sandboxed process, asleep until that process or its keeper writes."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import threading
from collections.abc import Callable
from typing import cast, get_args

from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.watch import Exceeded

KEPT_BYTES = 64 << 10


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


class Listener:
    """Drains two streams until `lifeline` ends, which is when the keeper has; calls `kill` once at too much output.

    On the lifeline come the keeper's last words, which are its `Watch`'s.
    """

    def __init__(self, *, streams: tuple[int, int], lifeline: int, limits: Limits, kill: Callable[[], None]) -> None:
        self.stdout = Text()
        self.stderr = Text()
        self.exceeded: Exceeded | None = None
        self.peak_memory_bytes = 0
        self._texts = dict(zip(streams, (self.stdout, self.stderr), strict=True))
        self._lifeline = lifeline
        self._limits = limits
        self._kill = kill
        self._output_bytes = 0
        self._words = b""
        self._thread = threading.Thread(target=self._run, name=f"listen-{lifeline}", daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until the streams are read to their ends; `timeout` in seconds."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for descriptor in (*self._texts, self._lifeline):
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            while self._lifeline in selector.get_map():
                self._drain(selector, None)
            # Everyone who could write is gone, so what a pipe still holds is the end.
            while selector.get_map() and self._drain(selector, 0):
                pass
            for stream in self._texts:
                os.close(stream)
        self._hear()

    def _drain(self, selector: selectors.BaseSelector, timeout: float | None) -> bool:
        """Read what is there, waiting `timeout` seconds for the first byte; False if there was nothing."""
        ready = selector.select(timeout)
        for key, _ in ready:
            try:
                data = os.read(key.fd, 1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                selector.unregister(key.fd)
            elif key.fd == self._lifeline:
                self._words += data
            else:
                self._texts[key.fd].add(data)
                self._output_bytes += len(data)
        if self._output_bytes > self._limits.output_bytes and self.exceeded is None:
            self.exceeded = "output"
            self._kill()
        return bool(ready)

    def _hear(self) -> None:
        """A keeper that was killed said nothing, and what no keeper says is nothing."""
        with contextlib.suppress(ValueError, RecursionError):
            match json.loads(self._words):
                case [exceeded, int(peak)] if exceeded in (None, *get_args(Exceeded)):
                    self.peak_memory_bytes = peak
                    self.exceeded = self.exceeded or cast("Exceeded | None", exceeded)
