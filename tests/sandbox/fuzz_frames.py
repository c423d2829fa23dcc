"""Frames and replies under atheris, which looks for new paths through them; for Pythons that have a wheel of it.

PYTHONPATH=src python tests/sandbox/fuzz_frames.py -max_total_time=60
"""

import socket
import struct
import sys
import time

import atheris

with atheris.instrument_imports(include=["kernelyard.sandbox.frames", "kernelyard.sandbox.wire"]):
    from kernelyard.sandbox.frames import Channel, Closed, ProtocolError
    from kernelyard.sandbox.wire import Reply

from pydantic import ValidationError

# Less than a socket holds, so that nobody has to read while it is written.
LARGEST = 1 << 16


def receive(sent: bytes) -> None:
    """What a worker sent is a reply, or it is refused in one of the documented ways."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        try:
            message, _ = Channel(ours).receive(time.monotonic() + 10)
            Reply.model_validate(message)
        except (Closed, ProtocolError, ValidationError):
            pass


def one(data: bytes) -> None:
    data = data[:LARGEST]
    receive(data)
    receive(struct.pack("!I", len(data)) + data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
