"""Frames between judge and worker over a Unix socket: a 4-byte length, that much JSON, and at most one descriptor.

Standard library only: workers are started before torch is imported here.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from typing import Any

MAX_FRAME = 1 << 20


class ProtocolError(Exception):
    """The other side sent what the protocol does not have."""


class Closed(Exception):
    """The other side is gone."""


class Channel:
    """Frames over one end of a socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, message: dict[str, Any], fd: int | None = None) -> None:
        """Raises Closed if the other side is gone."""
        body = json.dumps(message).encode()
        if len(body) > MAX_FRAME:
            raise ProtocolError(f"a frame of {len(body)} bytes; at most {MAX_FRAME} are allowed")
        frame = struct.pack("!I", len(body)) + body
        try:
            sent = socket.send_fds(self.socket, [frame], [fd] if fd is not None else [])
            self.socket.sendall(frame[sent:])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self, deadline: float | None = None) -> tuple[dict[str, Any], int | None]:
        """The next frame and the file descriptor it carried. `deadline` is on the monotonic clock.

        Raises Closed at the end of the stream, TimeoutError at the deadline and ProtocolError for anything else.
        """
        header, fd = self._read(4, deadline)
        (length,) = struct.unpack("!I", header)
        if length > MAX_FRAME:
            raise ProtocolError(f"a frame of {length} bytes; at most {MAX_FRAME} are allowed")
        body, late_fd = self._read(length, deadline)
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("a frame that is not JSON") from error
        if not isinstance(message, dict):
            raise ProtocolError("a frame that is not an object")
        return message, fd if fd is not None else late_fd

    def _read(self, count: int, deadline: float | None) -> tuple[bytes, int | None]:
        parts, fd = b"", None
        while len(parts) < count:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self.socket.settimeout(left)
            try:
                data, fds, _, _ = socket.recv_fds(self.socket, count - len(parts), 1)
            except ConnectionResetError as error:
                raise Closed from error
            for extra in fds[1:]:
                os.close(extra)
            if fds:
                fd = fds[0]
            if not data:
                raise Closed
            parts += data
        return parts, fd
