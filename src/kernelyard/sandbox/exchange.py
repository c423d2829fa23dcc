"""Questions to one worker and its answers: each in the time of its phase, and what it means where there is none."""

import contextlib
import os
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import ValidationError

from kernelyard.core.verdict import Phase, Status
from kernelyard.sandbox.deadlines import IN_ALL, Deadlines
from kernelyard.sandbox.device_memory import Shared
from kernelyard.sandbox.frames import Closed, ProtocolError, framed, message_of
from kernelyard.sandbox.lending import Lender
from kernelyard.sandbox.pool import Worker
from kernelyard.sandbox.wire import Reply


class Ended(Exception):
    """The session is over; says what that means for the candidate."""

    def __init__(self, status: Status, phase: Phase, message: str) -> None:
        # All three, for an exception crosses processes as its class and these.
        super().__init__(status, phase, message)
        self.status, self.phase, self.message = status, phase, message

    def __str__(self) -> str:
        return self.message


class WentOn(Ended):
    """The session's worker ran in somebody else's turn. It lives: who can do without that turn may go on."""


@dataclass(frozen=True)
class _Request:
    """One that is worded, and yet to be sent."""

    nonce: str
    frame: bytes
    shared: Shared | None


class Exchange:
    """What is sent to a worker, with the memory that goes with it, and what comes back.

    Every method raises Ended when the worker fails, dies, lies about the protocol or outlives its deadline.
    """

    def __init__(self, worker: Worker, device: torch.device, deadlines: Deadlines) -> None:
        self.device, self.deadlines = device, deadlines
        self.process, self.channel = worker.process, worker.channel
        self.phase = Phase.START
        self.lender = Lender(device)
        self._awaited: defaultdict[Phase, float] = defaultdict(float)

    def awaited(self) -> dict[Phase, float]:
        """Seconds that its worker was waited for, to read or to answer, by phase."""
        return dict(self._awaited)

    def _ask(self, do: str, shared: Shared | None = None, **fields: Any) -> Reply:
        return self._await(self._send(do, shared, **fields))

    def _send(self, do: str, shared: Shared | None, **fields: Any) -> str:
        request = self._worded(do, shared, **fields)
        self._put(request)
        return request.nonce

    def _worded(self, do: str, shared: Shared | None, **fields: Any) -> _Request:
        nonce = secrets.token_hex(16)
        if shared is not None:
            fields |= {"memory": shared.where, "size": shared.size, "kept": shared.kept}
        return _Request(nonce, framed({"nonce": nonce, "do": do, **fields}), shared)

    def _put(self, request: _Request) -> None:
        shared = request.shared
        fd = None
        if shared is not None:
            shared.settle()
            fd = self.lender.descriptor(shared)
        with self._in_time() as deadline:
            self.channel.send_frame(request.frame, fd, deadline)
        if shared is not None:
            self.lender.sent(shared)

    def _await(self, nonce: str) -> Reply:
        return self._understood(self._heard(), nonce)

    def _heard(self) -> tuple[bytes, int | None]:
        """What the worker answers, unread, and the descriptor that came with it."""
        try:
            with self._in_time() as deadline:
                return self.channel.receive_body(deadline)
        except ProtocolError as error:
            raise self._broken(str(error)) from None

    def _understood(self, answer: tuple[bytes, int | None], nonce: str) -> Reply:
        body, fd = answer
        if fd is not None:
            os.close(fd)
        try:
            reply = Reply.model_validate(message_of(body))
        except ProtocolError as error:
            raise self._broken(str(error)) from None
        except ValidationError as error:
            raise self._broken(f"an answer with {error.error_count()} fields that the protocol does not have") from None
        # As bytes: of texts it compares ASCII alone.
        if fd is not None or not secrets.compare_digest(reply.nonce.encode(), nonce.encode()):
            raise self._broken("an answer to a question that was not asked")
        if reply.failure is not None:
            raise Ended(Status(reply.failure.kind), self.phase, reply.failure.message)
        return reply

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[float]:
        """The moment until which the worker may be waited for, to read or to answer; the wait counts for its phase."""
        limit = self.deadlines.of(self.phase)
        left = IN_ALL * limit - self._awaited[self.phase]
        begin = time.monotonic()
        try:
            yield begin + min(limit, left)
        except TimeoutError:
            self.process.kill()
            if self.process.exceeded:
                raise self._died() from None
            status = Status.INFRA_ERROR if self.phase is Phase.START else Status.TIMEOUT
            missed = (
                f"no answer within {limit:g} s" if limit <= left else f"answers took over {IN_ALL * limit:g} s in all"
            )
            raise Ended(status, self.phase, f"{missed} in phase {self.phase.value}") from None
        except Closed:
            raise self._died() from None
        self._awaited[self.phase] += time.monotonic() - begin

    def _broken(self, what: str) -> Ended:
        self.process.kill()
        return Ended(Status.REJECTED, self.phase, f"the worker broke the protocol: {what}")

    def _died(self) -> Ended:
        """What the death of the worker means."""
        self.process.wait(2.0)
        self.process.kill()
        if self.process.exceeded == "keeper":
            return Ended(Status.INFRA_ERROR, self.phase, "the worker's keeper failed, and ended it")
        if self.process.exceeded == "memory":
            return Ended(Status.OUT_OF_MEMORY, self.phase, "killed for taking more memory than the limit")
        if self.process.exceeded is not None:
            return Ended(Status.REJECTED, self.phase, f"killed over the limit on {self.process.exceeded}")
        if self.phase is Phase.START:
            tail = (self.process.stderr.strip().splitlines() or ["no output"])[-1]
            return Ended(Status.INFRA_ERROR, self.phase, f"the worker did not start: {tail}")
        return Ended(Status.CRASHED, self.phase, f"{self.process.describe_exit()} before it answered")
