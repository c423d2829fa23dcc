"""The command `kernelyard`, and `python -m kernelyard`."""

import atexit
import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Run the command line; its imports take 0.1 s, in which Ctrl-C was a traceback through them."""
    end = [1]
    atexit.register(_leave, end)
    # A shell's job in the background ignores it.
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears:
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from kernelyard.cli.main import main as run

    if hears:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except SystemExit as stopped:
        end[0] = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
        raise


def _leave(end: list[int]) -> None:
    """Ends the process with that code, and takes nothing apart; registered before all others, it is called after them.

    What was imported `uncollected` is not collected at the end either, of which Triton 3.9 says in 27 lines that it
    leaks; to collect it takes 0.7 s. And a thread of autograd's that still holds something would be ended for it, and
    the process with it.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(end[0])


if __name__ == "__main__":
    main()
