"""Frames between judge and worker over a Unix socket: a 4-byte length, that much JSON, and at most one descriptor.

Standard library only: workers are started before torch is imported here.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from typing import Any

MAX_FRAME = 16 << 20
"""Bytes. An answer takes 140 to describe, and on a GPU 32 calls with a thousand answers each share a request: with
1 MiB an honest worker of 256 answers was gone there."""


class ProtocolError(Exception):
    """The other side sent what the protocol does not have."""


class Closed(Exception):
    """The other side is gone."""


def framed(message: dict[str, Any]) -> bytes:
    """A message as it is sent. Raises ProtocolError for one that is too long."""
    body = json.dumps(message).encode()
    if len(body) > MAX_FRAME:
        raise ProtocolError(f"a frame of {len(body)} bytes; at most {MAX_FRAME} are allowed")
    return struct.pack("!I", len(body)) + body


def message_of(body: bytes) -> dict[str, Any]:
    """What a frame says. Raises ProtocolError for one that is no object of JSON's."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a frame that is not JSON") from error
    if not isinstance(message, dict):
        raise ProtocolError("a frame that is not an object")
    return message


class Channel:
    """Frames over one end of a socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, message: dict[str, Any], fd: int | None = None, deadline: float | None = None) -> None:
        """One frame, and a descriptor with it. `deadline` is on the monotonic clock.

        Raises Closed if the other side is gone, TimeoutError if it has not read enough by the deadline, and
        ProtocolError, with nothing sent, for a message that is too long.
        """
        self.send_frame(framed(message), fd, deadline)

    def send_frame(self, frame: bytes, fd: int | None = None, deadline: float | None = None) -> None:
        """What `framed` made of a message: nothing is left to do but to send it. Raises as `send` does."""
        try:
            self._wait_until(deadline)
            sent = socket.send_fds(self.socket, [frame], [fd] if fd is not None else [])
            if sent < len(frame):
                self._wait_until(deadline)
                self.socket.sendall(frame[sent:])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self, deadline: float | None = None) -> tuple[dict[str, Any], int | None]:
        """The next frame and the file descriptor it carried. `deadline` is on the monotonic clock.

        Raises Closed at the end of the stream, TimeoutError at the deadline and ProtocolError for anything else.
        """
        body, fd = self.receive_body(deadline)
        try:
            return message_of(body), fd
        except ProtocolError:
            if fd is not None:
                os.close(fd)
            raise

    def receive_body(self, deadline: float | None = None) -> tuple[bytes, int | None]:
        """The same, unread: `message_of` says what it is. Raises as `receive` does."""
        # Descriptors that came with any byte of the frame: whoever does not get them here cannot close them.
        fds: list[int] = []
        try:
            (length,) = struct.unpack("!I", self._read(4, deadline, fds))
            if length > MAX_FRAME:
                raise ProtocolError(f"a frame of {length} bytes; at most {MAX_FRAME} are allowed")
            body = self._read(length, deadline, fds)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return body, fds[0] if fds else None

    def is_readable(self, seconds: float = 0.0) -> bool:
        """Whether something comes, be it the end, within so long."""
        return bool(select.select([self.socket], [], [], seconds)[0])

    def _read(self, count: int, deadline: float | None, fds: list[int]) -> bytes:
        parts = b""
        while len(parts) < count:
            self._wait_until(deadline)
            try:
                # One more than is allowed, to see that it came; the kernel drops the rest.
                data, came, _, _ = socket.recv_fds(self.socket, count - len(parts), 2)
            except ConnectionResetError as error:
                raise Closed from error
            fds += came
            if len(fds) > 1:
                raise ProtocolError("a frame with more than one descriptor")
            if not data:
                raise Closed
            parts += data
        return parts

    def _wait_until(self, deadline: float | None) -> None:
        """How long the next call may wait, whatever the last one might."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)
