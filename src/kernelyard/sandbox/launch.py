"""Start a command inside a sandbox and hold it: `choose` a kind, `launch`, and kill by leaving the context."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType

from kernelyard.core.errors import UsageError
from kernelyard.sandbox import bubblewrap, devices, native, probe, processes, seccomp, surroundings
from kernelyard.sandbox.confine import Walls
from kernelyard.sandbox.keeper import Plan, remove
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.listener import Listener
from kernelyard.sandbox.watch import Exceeded

_START_SECONDS = 20.0
_KILL_SECONDS = 30.0
# Of the CPU: what some hundred threads take to stop.
_STILL_SECONDS = 0.005
_SOURCE = str(Path(__file__).resolve().parents[2])
# -I and -S: nothing of the environment or of site-packages runs in the keeper, and it starts in 20 ms.
_KEEPER = f"import sys; sys.path.append({_SOURCE!r}); from kernelyard.sandbox.keeper import main; main()"


class SandboxKind(str, Enum):
    """How strong the walls are: namespaces, what a process can do to itself, or none at all."""

    BUBBLEWRAP = "bubblewrap"
    NATIVE = "native"
    NONE = "none"


class SandboxError(RuntimeError):
    """A sandboxed process could not be started, or could not be killed. Never the fault of the code inside."""


def choose(requested: SandboxKind | None = None, device: str = "cpu") -> SandboxKind:
    """The kind to use for `device`: the requested one, else bubblewrap where it runs, else native.

    Raises UsageError where the requested kind does not run here, or there is no such device.
    """
    if requested is not None and requested is not SandboxKind.BUBBLEWRAP:
        return requested
    problem = bubblewrap_problem(device)
    if problem is None:
        return SandboxKind.BUBBLEWRAP
    if requested is None:
        return SandboxKind.NATIVE
    raise UsageError(f"the bubblewrap sandbox does not run here: {problem}; expected --sandbox native")


@functools.cache
def bubblewrap_problem(device: str = "cpu") -> str | None:
    """Why bubblewrap cannot be used for `device`, found by running it once; None where it works.

    On a GPU the driver must answer inside: cuInit is known to fail in some user namespaces where nvidia-smi works.
    """
    if bubblewrap.program() is None:
        return "no bwrap on PATH and KERNELYARD_BWRAP names none"
    mode = "device" if devices.is_nvidia(device) else "start"
    command = [sys.executable, "-I", "-S", probe.__file__, mode, "{}"]
    try:
        with launch(command, kind=SandboxKind.BUBBLEWRAP, device=device) as process:
            if process.wait(_START_SECONDS) == 0:
                return None
            return process.stderr.strip() or process.stdout.strip() or process.describe_exit()
    except SandboxError as error:
        return str(error)


@dataclass(frozen=True)
class _World:
    """What one kind of sandbox makes of a command: the command line that really runs and all that goes with it."""

    command: list[str]
    private: Path | None = None
    rlimits: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    walls: Walls | None = None
    descriptors: list[int] = field(default_factory=list)


class SandboxedProcess:
    """A running command and everything it started. Leaving the context kills the whole tree.

    `missing`: layers that this machine lacks, by name, each with the reason.
    """

    def __init__(self, keeper: subprocess.Popen[bytes], lifeline: int, limits: Limits, world: _World) -> None:
        assert keeper.stdout is not None and keeper.stderr is not None
        self.missing = world.missing
        self._private = world.private
        self._keeper = keeper
        self._lifeline = lifeline
        self._listener = Listener(
            streams=(os.dup(keeper.stdout.fileno()), os.dup(keeper.stderr.fileno())),
            lifeline=lifeline,
            limits=limits,
            kill=lambda: keeper.send_signal(signal.SIGTERM),
        )
        keeper.stdout.close()
        keeper.stderr.close()

    def __enter__(self) -> SandboxedProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def private(self) -> Path | None:
        """The folder of the host's that is its private one; None where it has one of its own making."""
        return self._private

    @property
    def pid(self) -> int:
        """The pid of the keeper, on whose tree the limits are counted; not that of the command."""
        return self._keeper.pid

    @property
    def returncode(self) -> int | None:
        """Exit code of the command, minus the signal that killed it, or None while it runs.

        An exit code of 128 + n cannot be told from signal n and reads as the signal.
        """
        code = self._keeper.poll()
        if code is None or code <= 128 or code - 128 not in set(signal.Signals):
            return code
        return 128 - code

    @property
    def stdout(self) -> str:
        """What the command wrote so far, cut in the middle beyond 128 KiB; complete once it has ended."""
        return str(self._listener.stdout)

    @property
    def stderr(self) -> str:
        """As `stdout`."""
        return str(self._listener.stderr)

    @property
    def exceeded(self) -> Exceeded | None:
        """The limit for which the tree was killed, if it was; known once it has ended."""
        return self._listener.exceeded

    @property
    def peak_memory_bytes(self) -> int:
        """The largest memory of the tree that the keeper saw, in a look every 25 ms; 0 until it has ended."""
        return self._listener.peak_memory_bytes

    def poll(self) -> int | None:
        """`returncode`, without waiting."""
        if self._keeper.poll() is None:
            return None
        self._finish()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """`returncode` once the command has ended and its tree is gone; None if `timeout` seconds were not enough."""
        if not _ends(self._keeper, timeout):
            return None
        self._finish()
        return self.returncode

    def kill(self) -> None:
        """Kill the whole tree and return when it is gone. Harmless after the end, and twice.

        Raises SandboxError if it survives 30 s of SIGKILL, which means: it sits in a driver call, and the device is not
        fit for the next evaluation.
        """
        if self._keeper.poll() is None:
            self._keeper.send_signal(signal.SIGTERM)
        if self.wait(_KILL_SECONDS) is None:
            stuck = processes.descendants(self._keeper.pid)
            processes.send([*stuck, self._keeper.pid], signal.SIGKILL)
            raise SandboxError(f"processes {stuck} outlive SIGKILL: stuck in a kernel call")

    @contextlib.contextmanager
    def stopped(self) -> Iterator[Callable[[], str]]:
        """The command and all that it started stand still inside; gives what went on nevertheless, empty for nothing.

        A process can arm a timer that sends it SIGCONT, or be gone when it is to be stopped, with another in its place.
        So whoever must know asks before the end.
        """
        pids, moving = processes.stop(self._keeper.pid)
        begin, before = time.monotonic(), processes.cpu_seconds(pids)

        def went_on() -> str:
            # Each by itself: one that has gone would take what it had used from what others used now.
            now, passed = processes.cpu_seconds(pids), time.monotonic() - begin
            seconds = sum(now[pid] - before[pid] for pid in now.keys() & before.keys())
            if set(processes.descendants(self._keeper.pid)) - set(pids):
                return "it started processes while it was stopped"
            if seconds > _STILL_SECONDS:
                late = f", with threads in {b' '.join(sorted(moving)).decode()} when that began" if moving else ""
                return f"it ran for {seconds:.3g} s of {passed:.3g} while it was stopped{late}"
            return ""

        try:
            yield went_on
        finally:
            processes.send(pids, signal.SIGCONT)

    @contextlib.contextmanager
    def on_core(self, core: int) -> Iterator[None]:
        """The first threads of the command and of all that it started run on this one alone inside, then on any. They
        may leave it."""
        pids = processes.descendants(self._keeper.pid)
        processes.keep_to({core}, pids)
        try:
            yield
        finally:
            processes.keep_to(os.sched_getaffinity(0), pids)

    def threads(self) -> list[int]:
        """Of the process that was started last."""
        return [thread for pid in processes.descendants(self._keeper.pid)[-1:] for thread in processes.threads(pid)]

    def keep_apart(self, threads: Sequence[int], cores: Sequence[int]) -> None:
        """Have each of these threads of its processes run on the core at its place, and nowhere else."""
        own = {thread for pid in processes.descendants(self._keeper.pid) for thread in processes.threads(pid)}
        for thread, core in zip(threads, cores, strict=False):
            if thread in own:  # another's may have its number since
                processes.keep_to({core}, [thread])

    def describe_exit(self) -> str:
        """ "exit code 3", "killed by signal SIGSEGV" or "still running"."""
        code = self.returncode
        if code is None:
            return "still running"
        return f"exit code {code}" if code >= 0 else f"killed by signal {signal.Signals(-code).name}"

    def _finish(self) -> None:
        self._listener.join(5.0)
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._private is not None:
            remove(str(self._private))  # a keeper that was killed itself has left it


def _ends(process: subprocess.Popen[bytes], seconds: float | None) -> bool:
    """Wait for a child; whether it ended within so many seconds.

    Not `Popen.wait` with a timeout, which looks every 50 ms: two workers end in a verdict.
    """
    if seconds is not None and process.poll() is None:
        with contextlib.suppress(OSError, AttributeError):  # a kernel before Linux 5.3, another system
            end = os.pidfd_open(process.pid)
            try:
                waiting = select.poll()
                waiting.register(end, select.POLLIN)
                # Another thread may be about to collect it.
                seconds = 0.1 if waiting.poll(1e3 * seconds) else 0.0
            finally:
                os.close(end)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def launch(
    command: Sequence[str],
    *,
    kind: SandboxKind,
    limits: Limits | None = None,
    inherit: Sequence[int] = (),
    device: str = "cpu",
    readable: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    connects: bool = False,
) -> SandboxedProcess:
    """Run `command` inside `kind`; returns as soon as it is being executed.

    `inherit` are descriptors that the command gets under the same numbers. `readable` are paths it may read besides the
    interpreter, kernelyard and the system's libraries. `environment` is added to the allow-listed variables. With
    `connects` its processes may connect to each other by sockets. Its working directory is private, the only place it
    may write, and vanishes with it. SandboxKind.NONE takes nothing away: its output, memory and descendants are
    watched, and that is all.

    Raises SandboxError where it cannot be started, UsageError for a device that is not there or a sandbox in which who
    `connects` would reach the machine's sockets, too.
    """
    limits = limits or Limits()
    if connects and kind is SandboxKind.NATIVE:
        raise UsageError("the native sandbox lets nobody connect to a socket; expected bubblewrap")
    granted = devices.grant(device)
    with contextlib.ExitStack() as undo, contextlib.ExitStack() as handed_over:
        filter_fd = _filter(handed_over, connects=connects) if seccomp.supported() else None
        world = _world(command, kind, limits, granted.nodes, readable, filter_fd, undo)
        private = None if world.private is None else str(world.private)
        variables = surroundings.environment(
            private or bubblewrap.PRIVATE, {**granted.environment, **(environment or {})}
        )
        lifeline, keepers = (end.detach() for end in socket.socketpair())
        handed_over.callback(os.close, keepers)
        undo.callback(os.close, lifeline)
        report_read, report_write = os.pipe()
        undo.callback(os.close, report_read)
        descriptors = [*inherit, *world.descriptors]
        plan = Plan(world.command, private, descriptors, keepers, report_write, world.rlimits, limits, world.walls)
        try:
            keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _KEEPER, plan.to_json()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **variables} if kind is SandboxKind.NONE else variables,
                cwd=private or "/",
                start_new_session=True,
                pass_fds=[*descriptors, keepers, report_write],
            )
        finally:
            os.close(report_write)
        problem = _report(report_read)
        process = SandboxedProcess(keeper, lifeline, limits, world)
        undo.pop_all()
        os.close(report_read)
        if problem is not None:
            process.kill()
            raise SandboxError(problem or process.stderr.strip() or process.describe_exit())
        return process


def _world(
    command: Sequence[str],
    kind: SandboxKind,
    limits: Limits,
    nodes: Sequence[Path],
    readable: Sequence[Path],
    filter_fd: int | None,
    undo: contextlib.ExitStack,
) -> _World:
    if kind is SandboxKind.NONE:
        return _World(list(command), _private(undo))
    missing: dict[str, str] = {}
    if filter_fd is None:
        missing["seccomp"] = f"the call numbers of {platform.machine()} are not known"
    descriptors = [] if filter_fd is None else [filter_fd]
    shared = surroundings.readable_paths(readable)
    # Not 0: where core_pattern names a program, the kernel feeds it whatever the limit is, but for a limit of 1.
    rlimits = {"RLIMIT_CORE": 1, "RLIMIT_FSIZE": limits.file_bytes, "RLIMIT_NOFILE": limits.open_files}
    # Who may put itself before others, as an audio user may, is ahead of its baseline on a machine that is busy.
    rlimits |= {"RLIMIT_NICE": 0, "RLIMIT_RTPRIO": 0}
    if kind is SandboxKind.BUBBLEWRAP:
        bwrap = bubblewrap.program()
        if bwrap is None:
            raise SandboxError("bubblewrap: no such program")
        line = bubblewrap.command_line(
            bwrap, command, readable=shared, nodes=nodes, limits=limits, seccomp_fd=filter_fd
        )
        return _World(line, None, rlimits | _process_limit(os.getuid(), limits), missing, None, descriptors)
    private = _private(undo)
    planned = native.plan(private, shared, nodes, filter_fd)
    walls = planned.walls
    if walls.of_its_own:
        rlimits["RLIMIT_NPROC"] = limits.processes
    else:
        rlimits |= _process_limit(os.getuid() if walls.uid is None else walls.uid, limits)
    return _World(list(command), private, rlimits, missing | planned.missing, walls, descriptors)


def _filter(handed_over: contextlib.ExitStack, *, connects: bool) -> int:
    """A descriptor with the seccomp filter."""
    descriptor = os.memfd_create("seccomp")
    handed_over.callback(os.close, descriptor)
    os.pwrite(descriptor, seccomp.program(connects=connects), 0)
    return descriptor


def _process_limit(user: int, limits: Limits) -> dict[str, int]:
    """RLIMIT_NPROC counts all tasks of a user on the machine. Root is exempt: there the keeper alone counts."""
    return {} if user == 0 else {"RLIMIT_NPROC": processes.tasks_of_user(user) + limits.processes}


def _private(undo: contextlib.ExitStack) -> Path:
    path = Path(tempfile.mkdtemp(prefix="kernelyard-"))
    undo.callback(remove, str(path))
    return path


def _report(descriptor: int) -> str | None:
    """What the keeper says about the start: None if the command runs, else what went wrong."""
    text = b""
    while select.select([descriptor], [], [], _START_SECONDS)[0]:
        data = os.read(descriptor, 4096)
        if not data:
            return text.decode("utf-8", "replace") or None
        text += data
    return f"not started within {_START_SECONDS:.0f} s"
