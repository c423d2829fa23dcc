"""The command `kernelyard`, and `python -m kernelyard`."""

import os
import signal


def main() -> None:
    """Run the command line; its imports take 0.1 s, in which Ctrl-C was a traceback through them."""
    # A shell's job in the background ignores it.
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears:
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from kernelyard.cli.main import main as run

    if hears:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
