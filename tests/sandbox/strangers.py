"""A worker that is no worker: a thread at the other end of a session's socket."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from kernelyard.core.verdict import Phase
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.frames import Channel, Closed
from kernelyard.sandbox.pool import Worker
from kernelyard.sandbox.session import Session

CPU = torch.device("cpu")
ONE = [[torch.ones(1)]]


@dataclass
class Process:
    """As much of a worker's process as a session asks for."""

    exceeded: str | None = None
    killed: bool = False

    def kill(self) -> None:
        self.killed = True

    def wait(self, _seconds: float) -> None: ...

    def describe_exit(self) -> str:
        return "gone"


@dataclass
class Stranger:
    """A worker's place in a session, and the other end."""

    channel: Channel
    end: Channel
    nonce: str = "first"
    process: Process = field(default_factory=Process)

    def close(self) -> None:
        self.channel.socket.close()

    def asked(self) -> str:
        """The nonce of the next request; memory that is lent before it is taken."""
        while True:
            request, memory = self.end.receive(time.monotonic() + 20)
            if memory is not None:
                os.close(memory)
            if request["do"] != "lend":
                return str(request["nonce"])
            self.end.send({"nonce": request["nonce"]})

    def answer(self, fields: dict[str, Any], fd: int | None) -> None:
        """One request, with these fields and its nonce where they have none."""
        with contextlib.suppress(Closed):
            self.end.send({"nonce": self.asked(), **fields}, fd)


@contextlib.contextmanager
def met(seconds: float = 20.0) -> Iterator[tuple[Session, Stranger]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    stranger = Stranger(Channel(ours), Channel(theirs))
    with theirs, Session(cast(Worker, stranger), CPU, Deadlines(check=seconds)) as session:
        session.phase = Phase.CHECK
        yield session, stranger
