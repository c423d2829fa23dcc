"""The keeper: a small trusted parent of every sandboxed command, outside its walls.

The kernel hands orphans to the nearest subreaper, so whatever the command leaves behind - a daemon that forked twice
and started its own session included - becomes the keeper's child and is found. It looks at what they take, and ends
when that is too much, when the command ends, on SIGTERM, or when the judge is gone. Each time it kills and reaps every
descendant first: once the keeper has exited, the tree is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
import warnings  # noqa: F401 - Python 3.13's os.execvp would import it, from behind walls that may hide where it lies
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NoReturn

from kernelyard.sandbox import confine, processes
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.watch import LOOK_SECONDS, Exceeded, Watch

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Plan:
    """What the keeper is told, as JSON on its command line.

    `command`: what to run. `private`: a directory to delete at the end, or None. `inherit`: descriptors for the command
    alone. `lifeline`: an end of a socket pair whose other end the judge holds open, and which gets the last words of
    the keeper's `Watch`. `report`: write end of a pipe that gets one line of text if the command cannot be started, and
    closes without a word when it runs. `rlimits`: RLIMIT_* by name. `limits`: what the keeper looks for. `walls`: the
    native sandbox's, or None.
    """

    command: list[str]
    private: str | None
    inherit: list[int]
    lifeline: int
    report: int
    rlimits: dict[str, int]
    limits: Limits
    walls: confine.Walls | None

    def to_json(self) -> str:
        """The inverse of `from_json`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        """Raises ValueError, KeyError or TypeError on what is no plan."""
        fields = json.loads(text)
        walls = fields.pop("walls")
        limits = Limits(**fields.pop("limits"))
        return Plan(**fields, limits=limits, walls=confine.Walls(**walls) if walls else None)


def main() -> NoReturn:
    """Run the plan in `sys.argv[1]`; exits with the command's status, or 128 + the signal that killed it."""
    plan = Plan.from_json(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    stop = _Stop()
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, stop.arrives)
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        _become(plan, keeper)
    _let_go(plan)
    status: int | None = None
    watch = Watch(keeper, plan.limits, plan.private)
    exceeded: Exceeded | None = None
    look_at = 0.0
    try:
        while status is None and not stop.asked and exceeded is None:
            if time.monotonic() >= look_at:
                exceeded = stop.unless(watch.look)
                look_at = time.monotonic() + LOOK_SECONDS
            ready, _, _ = select.select([plan.lifeline, wake_read], [], [], max(look_at - time.monotonic(), 0))
            if plan.lifeline in ready:
                break
            if wake_read in ready:
                os.read(wake_read, 4096)
                status = _reap(child)
    except Exception:
        # Whatever stops the looking must end the tree too: one that nobody looks at has no limits. It is no verdict
        # on the candidate, so the judge is told who failed.
        exceeded = "keeper"
    finally:
        status = _sweep(child, status, wake_read)
    with contextlib.suppress(BrokenPipeError):
        os.write(plan.lifeline, watch.last_words(exceeded))
    if plan.private is not None:
        remove(plan.private)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


class _Stopped(BaseException):
    """SIGTERM, in the middle of something that may be left."""


class _Stop:
    """Whether SIGTERM has come. A look at a large tree takes seconds, in which it would grow: that is left at once."""

    def __init__(self) -> None:
        self.asked = False
        self._raises = False

    def arrives(self, *_: object) -> None:
        self.asked = True
        raises, self._raises = self._raises, False
        if raises:
            raise _Stopped

    def unless(self, look: Callable[[], Exceeded | None]) -> Exceeded | None:
        """What `look` finds; None where SIGTERM comes first."""
        found: Exceeded | None = None
        try:
            self._raises = True
            if not self.asked:
                found = look()
            self._raises = False
        except _Stopped:
            pass
        return found


def remove(directory: str) -> None:
    """Delete `directory`, however deep, also where its owner has taken the permissions away from parts of it.

    Not by `shutil.rmtree`, which calls itself: of 3000 directories one in the other it raised, and left them all.
    """
    for line in (("rm", "-rf"), ("chmod", "-R", "u+rwX"), ("rm", "-rf")):
        if os.path.lexists(directory):
            quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
            os.waitpid(os.posix_spawnp(line[0], [*line, "--", directory], os.environ, file_actions=quiet), 0)


def _become(plan: Plan, keeper: int) -> NoReturn:
    """The command's side of the fork."""
    try:
        signal.set_wakeup_fd(-1)
        # Python ignores the last two, and what is ignored stays ignored over exec.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.close(plan.lifeline)
        # Where sessions share the cores evenly, 400 threads that spin leave the keeper half of them and not a part in
        # 400: to kill them took 20 s.
        os.setsid()
        os.set_inheritable(plan.report, False)
        with open("/proc/self/oom_score_adj", "w") as adjustment:  # noqa: PTH123
            adjustment.write("1000")  # the first to go when the machine runs short
        confine.apply_rlimits(plan.rlimits)
        if plan.walls is not None:
            confine.apply(plan.walls, plan.private, keeper)
            if plan.walls.seccomp_fd is not None:
                os.close(plan.walls.seccomp_fd)
        confine.die_with_parent(keeper)
        os.execvp(plan.command[0], plan.command)
    except BaseException as error:
        os.write(plan.report, f"{type(error).__name__}: {error}".encode())
    os._exit(126)


def _let_go(plan: Plan) -> None:
    """Drop every descriptor of the command's, so that their other ends see its end and not the keeper's."""
    for descriptor in (*plan.inherit, plan.report):
        os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _reap(child: int) -> int | None:
    """Collect every ended child; the wait status of `child` if it was among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _sweep(child: int, status: int | None, wake: int) -> int:
    """Kill until no descendant is left; ECHILD proves it, because orphans come to the subreaper.

    `wake` can be read when a child has ended. To look again at set times cost a verdict, in which two workers end
    whose contexts on a GPU take a tenth of a second to, up to 50 ms for each.
    """
    pause = 0.0005
    while True:
        for pid in processes.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        while True:
            try:
                pid, ended = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return status if status is not None else signal.SIGKILL
            if pid == 0:
                break
            if pid == child:
                status = ended
        if select.select([wake], [], [], pause)[0]:
            os.read(wake, 4096)
        pause = min(2 * pause, 0.05)  # one that sits in a driver call may take seconds to die
