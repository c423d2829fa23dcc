"""Workers that wait from one trial to the next, as they do in `kernelyard run`.

A worker takes 3 s to start on an H100's host and its verdict 2, so that a soak of 200 in a row was 18 minutes, and 27
beside other programs. On a CPU workers that start take time from those that are timed: there each trial has its own.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from kernelyard.core.errors import UsageError
from kernelyard.sandbox.launch import SandboxedProcess, SandboxKind
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Pool, Post

# Starting a process takes a tenth of a second; torch is imported by it later.
SECONDS = 30.0


@dataclass(frozen=True)
class Waiting:
    """A pool by the limits of its workers."""

    pools: Mapping[Limits, Pool]

    @classmethod
    @contextmanager
    def opened(cls, sandbox: SandboxKind, device: str, *limits: Limits) -> Iterator["Waiting"]:
        """One for each of these limits; workers that nobody took end with the context."""
        posts = [Post(sandbox, each, device) for each in limits]
        with ExitStack() as stack:
            yield cls({post.limits: stack.enter_context(Pool(post, size=post.ahead)) for post in posts})

    def processes(self) -> list[SandboxedProcess]:
        """All that wait, once each pool has as many as it keeps. Raises UsageError where it does not get them."""
        found: list[SandboxedProcess] = []
        for pool in self.pools.values():
            if not pool.await_full(SECONDS):
                raise UsageError(f"workers do not start within {SECONDS:g} s; expected {pool.post.ahead} that wait")
            found += pool.processes()
        return found
