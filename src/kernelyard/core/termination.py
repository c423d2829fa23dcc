"""SIGTERM, heard. Beside `interrupts`, whose import of multiprocessing would be 8 ms of every start."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminated_like_interrupted() -> Iterator[threading.Event]:
    """Within, SIGTERM - a scheduler's, of `timeout`, or of the process that gave out the work - does what Ctrl-C does,
    and what was planted is taken away on the way out. Gives whether it has come; a second one cuts nothing short.

    Where SIGTERM is heard or ignored already, that stays as it is. In the main thread alone.
    """
    terminated, before = threading.Event(), signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL:
        yield terminated
        return

    def interrupt(*_: object) -> None:
        if not terminated.is_set():
            terminated.set()
            raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield terminated
    finally:
        signal.signal(signal.SIGTERM, before)
