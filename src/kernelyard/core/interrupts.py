"""Ctrl-C is for the process that gives out the work. The processes that it starts are ended by it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def deaf_children() -> Iterator[None]:
    """A process that is started within never meets Ctrl-C, its imports included: it inherits the blocked signal.

    Here a Ctrl-C meanwhile comes in behind it. In any thread, as `signal.signal` would not.
    """
    # The first process with a method other than fork starts the tracker too, which unblocks what it blocks.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
