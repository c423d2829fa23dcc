"""Ctrl-C is for the process that gives out the work. The processes that it starts are ended by it, or with it."""

import multiprocessing
import os
import signal
import threading
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


def end_with_parent() -> None:
    """Have this process, which another one started, meet SIGTERM when that one is gone, however it ended.

    Seven of a catalogue's, whose parent had been killed, judged on for two minutes and then kept 12 GB of an H100.
    """
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
