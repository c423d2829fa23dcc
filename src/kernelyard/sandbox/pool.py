"""Workers that wait with torch imported, each for one candidate and one life.

Importing torch is the most that a worker's start costs (1.2 s on a quiet machine), so it is done before anyone asks,
and no device is touched. Nothing here imports torch: the command line starts its workers before its own imports.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelyard.sandbox.frames import Channel, Closed
from kernelyard.sandbox.launch import SandboxedProcess, SandboxKind, launch
from kernelyard.sandbox.limits import Limits

# After a start that failed; the next may find a machine that is less loaded.
_PAUSE_SECONDS = 1.0
# A verdict takes two workers, and on an H100 as little as 2 s; a worker takes 3 s to start beside others. With two in
# waiting, verdicts waited 0.5 to 3 s for the next; with four, two of nine of 1.8 s waited 0.8 and 1.0 s. On a CPU,
# workers that start take time from those that are timed.
_WAITING, _WAITING_CPU = 6, 2
# The largest that glibc takes.
_LARGEST_THRESHOLD = 32 << 20
_NEVER = 1 << 40


@dataclass(frozen=True)
class Post:
    """What a worker is started for: its walls, its limits and the one device it is granted ("cpu", "cuda:0")."""

    kind: SandboxKind
    limits: Limits = field(default_factory=Limits)
    device: str = "cpu"

    @property
    def ahead(self) -> int:
        """How many workers to keep waiting where one verdict follows another."""
        return _WAITING_CPU if self.device == "cpu" else _WAITING

    @property
    def environment(self) -> dict[str, str]:
        """What a worker's variables are beyond the sandbox's own."""
        if self.device == "cpu":
            # Threads that wait for one another sleep: one that spins has the core that the other needs, for as long as
            # the kernel lets it, and a softmax of 0.16 ms took 5 in one call of four, with two threads on two cores.
            # Of itself its noise floor was 42 to 150 % then, and is 5 to 9.
            # And memory that is given back stays the process's. By itself glibc's threshold grows with what was given
            # back before, so that an answer of 2 MB lies in fresh pages in one call, 0.75 ms, and in old ones in
            # another, 0.34, of one worker as of two.
            return {
                "TRITON_INTERPRET": "1",
                "OMP_WAIT_POLICY": "PASSIVE",
                "MALLOC_MMAP_THRESHOLD_": str(_LARGEST_THRESHOLD),
                "MALLOC_TRIM_THRESHOLD_": str(_NEVER),
            }
        # Segments of many pieces: what is given back comes back elsewhere, which `scatter` needs.
        return {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


@dataclass(frozen=True)
class Worker:
    """A started worker that has seen nothing yet but a first question, which it answers once torch is imported."""

    post: Post
    process: SandboxedProcess
    channel: Channel
    nonce: str
    """Of the first question."""

    @classmethod
    def start(
        cls,
        post: Post,
        under: Sequence[str] = (),
        *,
        readable: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Worker:
        """Raises SandboxError or UsageError as `launch` does. Returns before the interpreter is up.

        `under`: a tool and its options, to run the worker with, to which it may connect: compute-sanitizer waits for
        that, for good where it is denied. `readable` and `environment` as for `launch`.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            process = launch(
                [
                    *under,
                    sys.executable,
                    "-P" if sys.version_info >= (3, 11) else "-s",
                    "-m",
                    "kernelyard.sandbox.worker",
                    str(theirs.fileno()),
                ],
                kind=post.kind,
                limits=post.limits,
                inherit=(theirs.fileno(),),
                device=post.device,
                readable=readable,
                environment={**post.environment, **(environment or {})},
                connects=bool(under),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        worker = cls(post, process, Channel(ours), secrets.token_hex(16))
        # It fits the socket's buffer, so nothing waits here; a worker that is gone already is found when it is used.
        with contextlib.suppress(Closed):
            worker.channel.send({"nonce": worker.nonce, "do": "ping"})
        return worker

    def answered(self) -> bool:
        """Whether it has said something, or is gone."""
        return bool(select.select([self.channel.socket], [], [], 0)[0])

    def close(self) -> None:
        """End every process of it."""
        self.channel.socket.close()
        self.process.kill()


class Pool:
    """Keeps `size` workers waiting and starts a new one for each that is taken, in the background.

    A context manager: leaving it ends those that nobody took; those that were taken belong to the taker. With
    `replenish` false it starts `size` workers at once and later ones only on demand: what one evaluation needs.
    """

    def __init__(self, post: Post, size: int = 2, *, replenish: bool = True) -> None:
        self.post = post
        self._size = size
        self._replenish = replenish
        self._waiting: deque[Worker] = deque()
        self._wanted = size
        self._failed: Exception | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._fill, name="pool", daemon=True)
        self._thread.start()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> Worker:
        """A worker that nobody else got or will get; waits for one to be started, not for torch.

        Raises SandboxError or UsageError where none can be started, and RuntimeError after `close`.
        """
        with self._changed:
            while True:
                if self._closed:
                    raise RuntimeError("the pool is closed")
                if self._waiting:
                    worker = self._waiting.popleft()
                    if self._replenish:
                        self._want(1)
                    if worker.process.poll() is None:
                        return worker
                    worker.close()  # it died while it waited: nobody's fault yet
                elif self._failed is not None:
                    failed, self._failed = self._failed, None
                    raise failed
                elif not self._wanted:
                    self._want(1)
                self._changed.wait_for(lambda: self._waiting or self._failed or self._closed or not self._wanted)

    def warm(self) -> int:
        """How many wait and have torch imported."""
        with self._changed:
            return sum(worker.answered() for worker in self._waiting)

    def await_warm(self, seconds: float) -> bool:
        """Wait until `size` workers are warm; false if `seconds` were not enough."""
        deadline = time.monotonic() + seconds
        while self.warm() < self._size:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def await_full(self, seconds: float) -> bool:
        """Wait until `size` workers are started, warm or not; false if `seconds` were not enough.

        Raises what the last start did that failed.
        """
        with self._changed:
            full = self._changed.wait_for(lambda: not self._wanted, seconds)
            if not full and self._failed is not None:
                raise self._failed
            return full

    def processes(self) -> list[SandboxedProcess]:
        """Of those that wait."""
        with self._changed:
            return [worker.process for worker in self._waiting]

    def close(self) -> None:
        """End the workers that nobody took. Harmless twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        while self._waiting:
            self._waiting.popleft().close()

    def _want(self, count: int) -> None:
        self._wanted += count
        self._changed.notify_all()

    def _fill(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._closed)
                if self._closed:
                    return
            try:
                worker = Worker.start(self.post)
            except Exception as error:
                self._fail(error)
                continue
            with self._changed:
                self._waiting.append(worker)
                self._failed = None
                self._wanted -= 1
                self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        """Whoever waits is told; who does not keep workers waiting gives up, the others try again."""
        with self._changed:
            self._failed = error
            if not self._replenish:
                self._wanted = 0
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed, _PAUSE_SECONDS)
