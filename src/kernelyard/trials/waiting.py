"""Workers that wait from one trial to the next, as they do in `kernelyard run`.

A worker takes 3 s to start on an H100's host and its verdict 2, so that a soak of 200 in a row was 18 minutes, and 27
beside other programs. On a CPU workers that start take time from those that are timed: there each trial has its own.
"""

from contextlib import ExitStack
from types import TracebackType

from kernelyard.core.errors import UsageError
from kernelyard.sandbox.launch import SandboxedProcess, SandboxKind
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Pool, Post

# Starting a process takes a tenth of a second; torch is imported by it later.
SECONDS = 30.0


class Waiting:
    """A pool for each of these limits. A context manager, for it ends those that nobody took."""

    def __init__(self, sandbox: SandboxKind, device: str, *limits: Limits) -> None:
        self._posts = [Post(sandbox, each, device) for each in limits]
        self._pools: dict[Limits, Pool] = {}
        self._undo = ExitStack()

    def __enter__(self) -> "Waiting":
        with ExitStack() as undo:
            for post in self._posts:
                self._pools[post.limits] = undo.enter_context(Pool(post, size=post.ahead))
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def pool(self, limits: Limits) -> Pool:
        """The one of these limits."""
        return self._pools[limits]

    def processes(self) -> list[SandboxedProcess]:
        """All that wait, once each pool has as many as it keeps. Raises UsageError where it does not get them."""
        found: list[SandboxedProcess] = []
        for pool in self._pools.values():
            if not pool.await_full(SECONDS):
                raise UsageError(f"workers do not start within {SECONDS:g} s; expected {pool.post.ahead} that wait")
            found += pool.processes()
        return found
