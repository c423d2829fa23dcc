"""A slot: one device, and a process of its own that judges one candidate after another on it.

The judge's process runs problem files, sets torch's seeds and holds a context on the device, so each device has its
own, and what ends one ends no run. It keeps workers waiting, the problem at hand, and what the device can do: the
ceilings are measured once. Everything that makes a verdict fair - questions, weights, the baseline's times beside the
candidate's - is made anew for each candidate.
"""

import multiprocessing
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from kernelyard.core.environment import Environment
from kernelyard.core.errors import first_line
from kernelyard.core.imports import uncollected
from kernelyard.core.interrupts import deaf_children, end_with_parent
from kernelyard.core.policy import Policy
from kernelyard.core.problem import Problem, Source
from kernelyard.core.verdict import Phase, SandboxRecord, Status, Verdict
from kernelyard.judge.compiling import Build
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.deadlines import IN_ALL, WAITING, Deadlines
from kernelyard.sandbox.launch import SandboxKind
from kernelyard.sandbox.limits import Limits
from kernelyard.suites.suite import Entry

if TYPE_CHECKING:
    import torch

    from kernelyard.sandbox.health import Ward

# Its imports and the device's start, on a loaded machine.
_START_SECONDS = 180.0
_KILL_SECONDS = 5.0


@dataclass(frozen=True)
class Terms:
    """How every candidate of a run is judged."""

    dtype: str
    sandbox: SandboxKind
    limits: Limits
    deadlines: Deadlines
    plan: Plan
    policy: Policy
    train_mode: bool = False

    @property
    def silence(self) -> float:
        """Seconds within which a judge's process that is well says something: it does so as a phase begins."""
        longest = max(self.deadlines.load, self.deadlines.check, self.deadlines.time)
        # What a solution's requests of one phase may take together; the baseline's come on top.
        return _START_SECONDS + self.deadlines.start + (IN_ALL + 1) * longest + self.plan.seconds


@dataclass(frozen=True)
class Answer:
    """What came of a candidate in a slot."""

    verdict: str | None
    """As JSON; None where there is none, and the machine is at fault."""
    fault: str = ""
    """Why there is none, in one line."""
    unfit: str = ""
    """Why the device must not be used any more."""
    asked: bool = True
    """Whether anything of the candidate ran: on a device that was unfit before, nothing does."""
    unwell: bool = False
    """Whether the judge's process has lost its context on the device, and with it all verdicts to come."""


def unasked(
    status: Status, message: str, entry: Entry, solution: Source, terms: Terms, environment: Environment
) -> Verdict:
    """The verdict on a candidate that no worker was asked about."""
    return Verdict(
        status=status,
        phase=Phase.START,
        message=message,
        problem=entry.source.path.name,
        problem_sha256=entry.source.sha256,
        solution=solution.path.name,
        solution_sha256=solution.sha256,
        dtype=terms.dtype,
        train_mode=terms.train_mode,
        policy=terms.policy,
        sandbox=SandboxRecord(kind=terms.sandbox.value),
        environment=environment,
    )


class Slot:
    """The judge's process for one device, started when it is first asked, and again after it ended."""

    def __init__(self, device: str, terms: Terms) -> None:
        self.device, self.terms = device, terms
        self.phase = ""
        """What it is at, for whoever looks."""
        self._process: Any = None
        self._pipe: Connection | None = None
        self._closed = False
        self._lock = threading.Lock()
        """Between who starts the process and who ends it: one started behind a `close` would never be ended."""

    def judge(self, entry: Entry, solution: Source, build: Build) -> Answer:
        """Blocks until there is a verdict or no hope of one."""
        try:
            pipe = self._pipe or self._start()
        except OSError as error:
            # The machine is out of descriptors or processes, and there is none whose end could be waited for.
            return Answer(None, f"the judge's process cannot be started: {first_line(error)}")
        if pipe is None:
            return Answer(None, "the slot is closed")
        try:
            pipe.send((entry, solution, build))
            while True:
                patience = self.terms.silence
                patience += self.terms.deadlines.queue if self.phase == WAITING else 0
                if not pipe.poll(patience):
                    fault = f"the judge's process said nothing for {patience:.0f} s while {self.phase or 'starting'}"
                    break
                said = pipe.recv()
                if isinstance(said, Answer):
                    self.phase = ""
                    if said.verdict is None or said.unwell:
                        self._end()  # whatever it met may have left it unwell
                    return said
                self.phase = said
        except (EOFError, OSError):
            self._process.join(5)
            fault = f"the judge's process ended, exit code {self._process.exitcode}, while {self.phase or 'starting'}"
        stuck = self._end()
        return Answer(None, fault, unfit=f"{self.device}: {stuck}" if stuck else "")

    def close(self) -> None:
        """End the process and with it every worker; none is started any more. Harmless twice, from any thread."""
        self._closed = True
        self._end()

    def _end(self) -> str:
        """Why it cannot be ended; empty where it was."""
        with self._lock:
            self.phase = ""  # the next process is at nothing yet
            if self._pipe is not None:
                self._pipe.close()
                self._pipe = None
                self._process.kill()
                self._process.join(_KILL_SECONDS)
                if self._process.exitcode is None:
                    # It still has the device's turn, and nobody waits for a driver.
                    return "the judge's process outlives SIGKILL: stuck in a call of the driver"
        return ""

    def _start(self) -> Connection | None:
        """The pipe to a new process; None after `close`."""
        context = multiprocessing.get_context("spawn")
        with self._lock:
            if self._closed:
                return None
            pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self.device, self.terms), name="slot")
            with deaf_children():
                self._process.start()
            theirs.close()
            self._pipe = pipe
        return pipe


def _serve(pipe: Connection, device_name: str, terms: Terms) -> None:
    """The process: answers until the other end is gone."""
    end_with_parent()  # no verdict is worth anything once nobody can keep it; workers end with this process
    with uncollected():
        import torch

        from kernelyard.core import interpreter
        from kernelyard.core.environment import describe
        from kernelyard.core.errors import UsageError
        from kernelyard.core.workload import DTYPES
        from kernelyard.judge.evaluate import evaluate
        from kernelyard.judge.floor import Remembered
        from kernelyard.sandbox.health import Ward
        from kernelyard.sandbox.pool import Pool, Post
        from kernelyard.sandbox.turn import look_alone

    device = torch.device(device_name)
    interpreter.choose_for(device.type)
    ceilings = Remembered()
    ward = Ward.usual()
    loaded: tuple[Source, Problem] | None = None
    post = Post(terms.sandbox, terms.limits, device_name)
    with Pool(post, size=post.ahead) as pool:
        while True:
            try:
                entry, solution, build = pipe.recv()
            except (EOFError, OSError):
                return
            if refusal := ward.refusal(device):
                with suppress(OSError):
                    pipe.send(Answer(None, refusal, unfit=refusal, asked=False))
                continue
            try:
                if loaded is None or loaded[0] != entry.source:
                    try:
                        loaded = (entry.source, replace(entry.load(), train_mode=terms.train_mode))
                    except UsageError as error:
                        status = Status.INVALID_PROBLEM
                        verdict = unasked(status, str(error), entry, solution, terms, describe(device))
                        pipe.send(Answer(verdict.model_dump_json()))
                        continue
                verdict = evaluate(
                    loaded[1],
                    solution,
                    device=device,
                    dtype=DTYPES[terms.dtype],
                    sandbox=terms.sandbox,
                    limits=terms.limits,
                    deadlines=terms.deadlines,
                    plan=terms.plan,
                    policy=terms.policy,
                    pool=pool,
                    ward=ward,
                    build=build,
                    ceilings=ceilings,
                    on_phase=pipe.send,
                )
                unfit = _unfit(ward, device, terms) if verdict.status is Status.INFRA_ERROR else ""
                answer = Answer(verdict.model_dump_json(), unfit=unfit, unwell=not _is_well(device))
            except Exception as error:
                fault = f"the judge failed: {first_line(error)}"
                # A device that has failed in the judge's hands fails for all that come.
                look_alone(ward, device, fault, terms.deadlines.queue)
                answer = Answer(None, fault, unfit=_unfit(ward, device, terms))
            try:
                pipe.send(answer)
            except OSError:
                return


def _is_well(device: "torch.device") -> bool:
    """Whether this process still has its context on the device."""
    import torch

    try:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
    except RuntimeError:
        return False
    return True


def _unfit(ward: "Ward", device: "torch.device", terms: Terms) -> str:
    """Why nothing can be judged on the device, where that is what a candidate could not help; else empty."""
    from kernelyard.sandbox.witness import fallen

    return ward.refusal(device) or fallen(terms.sandbox, str(device))
