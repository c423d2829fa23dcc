"""A worker stands still while it is another's turn."""

import itertools
import os
import pickle
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from kernelyard.core.cores import cores_from
from kernelyard.core.verdict import Phase, Status
from kernelyard.sandbox import processes, seccomp
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.launch import SandboxKind, choose, launch
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Post, Worker
from kernelyard.sandbox.session import Session

CPU = torch.device("cpu")
HONEST = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return 2 * x
"""
SPINS = (
    """
import os, threading, time, torch

def spin():
    end = time.monotonic() + 20
    while time.monotonic() < end:
        pass

if os.fork() == 0:
    spin()
    os._exit(0)
threading.Thread(target=spin, daemon=True).start()
"""
    + HONEST
)
# The kernel's timers send the signal to go on, and nobody stops those. Many that ring once: SIGSTOP takes back what is
# on its way, and a periodic one with it. struct sigevent: value, signal, kind; struct itimerspec: interval, expiry.
WAKES_ITSELF = (
    """
import ctypes, signal, struct
signal.signal(signal.SIGCONT, lambda *_: None)
libc = ctypes.CDLL(None, use_errno=True)
for i in range(600):
    event, timer = ctypes.create_string_buffer(64), ctypes.c_void_p()
    struct.pack_into("QiI", event, 0, 0, signal.SIGCONT, 0)
    assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
    seconds, rest = divmod(25 * i + 25, 1000)
    assert libc.timer_settime(timer, 0, struct.pack("qqqq", 0, 0, seconds, 1_000_000 * rest), None) == 0
"""
    + SPINS
)


def test_an_end_crosses_processes() -> None:
    end = pickle.loads(pickle.dumps(Ended(Status.CRASHED, Phase.TIME, "gone")))
    assert (end.status, end.phase, end.message, str(end)) == (Status.CRASHED, Phase.TIME, "gone", "gone")


@pytest.fixture(params=[SandboxKind.NATIVE, None], ids=["native", "usual"])
def post(request: pytest.FixtureRequest) -> Post:
    return Post(choose(request.param), Limits(), "cpu")


def loaded(post: Post, source: str) -> Session:
    session = Session(Worker.start(post), CPU, Deadlines())
    session.await_start()
    session.load("solution.py", source, "ModelNew", [], 1, torch.float32, {})
    return session


def test_nothing_of_it_runs_and_then_all_goes_on(post: Post) -> None:
    x = torch.randn(3)
    with loaded(post, SPINS) as session:
        with session.still():
            time.sleep(0.3)
        with session.process.stopped() as went_on:
            time.sleep(0.3)
            assert not went_on()
        session.run([[x]])
        assert torch.equal((session.fetch(0, [x]).tensors or ())[0], 2 * x)


@pytest.fixture
def who_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a call that does it is not known."""
    monkeypatch.delitem(seccomp._DENIED[platform.machine()], "timer_create")


@pytest.mark.usefixtures("who_wakes")
def test_one_that_wakes_itself_is_found(post: Post) -> None:
    with (
        loaded(post, WAKES_ITSELF) as session,
        pytest.raises(Ended, match="while it was stopped") as raised,
        session.still(),
    ):
        time.sleep(1)
    assert raised.value.status is Status.REJECTED


# A child has used what the parent, which wakes itself, means to use; it is gone and buried when the judge looks.
PAYS_WITH_A_CHILD = """
import ctypes, os, signal, struct, time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

child = os.fork()
if child == 0:
    burn(0.3)
    signal.pause()
time.sleep(0.6)

def wake(*_):
    signal.signal(signal.SIGCONT, signal.SIG_IGN)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    burn(0.1)

signal.signal(signal.SIGCONT, wake)
libc = ctypes.CDLL(None)
for i in range(100):
    event, timer = ctypes.create_string_buffer(64), ctypes.c_void_p()
    struct.pack_into("QiI", event, 0, 0, signal.SIGCONT, 0)
    assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
    rest = 1_000_000 * (500 + 4 * i)
    assert libc.timer_settime(timer, 0, struct.pack("qqqq", 0, 0, 0, rest), None) == 0
print("armed", flush=True)
while True:
    time.sleep(0.01)
"""


def test_none_has_itself_woken(post: Post) -> None:
    code = (
        "import ctypes, errno, fcntl, signal, struct, socket\n"
        "libc, (one, _) = ctypes.CDLL(None, use_errno=True), socket.socketpair()\n"
        "event, timer = ctypes.create_string_buffer(64), ctypes.c_void_p()\n"
        "struct.pack_into('QiI', event, 0, 0, signal.SIGCONT, 0)\n"
        "print(libc.timer_create(1, event, ctypes.byref(timer)), errno.errorcode.get(ctypes.get_errno()))\n"
        "fcntl.fcntl(one, fcntl.F_SETFL, fcntl.fcntl(one, fcntl.F_GETFL) | 1)\n"
        "try: print(fcntl.fcntl(one, 10, signal.SIGCONT))\n"
        "except PermissionError: print('denied')\n"
    )
    said = []
    for kind in (post.kind, SandboxKind.NONE):
        with launch([sys.executable, "-I", "-S", "-c", code], kind=kind) as process:
            assert process.wait(20) == 0, process.stderr
            said.append(process.stdout.split())
    assert said == [["-1", "EPERM", "denied"], ["0", "None", "0"]]


@pytest.mark.usefixtures("who_wakes")
def test_what_a_child_used_before_pays_for_nothing(post: Post) -> None:
    with launch([sys.executable, "-I", "-S", "-c", PAYS_WITH_A_CHILD], kind=post.kind) as process:
        while "armed" not in process.stdout:
            time.sleep(0.002)
        with process.stopped() as went_on:
            time.sleep(1.2)
            assert went_on().startswith("it ran for 0.")


def test_one_that_is_always_gone_when_the_signal_comes_is_found(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process starts the next and ends: whoever looks sees one that is new."""
    after_all_pids = itertools.count(1 << 23)
    with loaded(post, HONEST) as session:
        monkeypatch.setattr(processes, "descendants", lambda _: [next(after_all_pids)])
        begin = time.monotonic()
        with pytest.raises(Ended, match="it started processes while it was stopped"), session.still():
            assert time.monotonic() - begin < 10
        monkeypatch.undo()


def test_a_stop_waits_for_the_end_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thread sits in a call of the kernel's, so the second has yet to hear of the stop."""
    ahead = [{b"D", b"S"}, {b"D", b"S"}, {b"R", b"S"}, {b"T", b"R"}, {b"T"}]
    monkeypatch.setattr(processes, "descendants", lambda _: [1 << 23])
    monkeypatch.setattr(processes, "_states", lambda _: ahead.pop(0))
    processes.stop(os.getpid())
    assert ahead == []


def test_a_stop_waits_not_for_one_that_waits_for_a_stopped_child(tmp_path: Path) -> None:
    """It has started a child that is not yet another program, because that waits for the other end of a pipe."""
    os.mkfifo(tmp_path / "pipe")
    code = (
        "import os\n"
        f"waits = (os.POSIX_SPAWN_OPEN, 3, {str(tmp_path / 'pipe')!r}, os.O_RDONLY, 0)\n"
        "os.posix_spawn('/bin/true', ['true'], {}, file_actions=[waits])"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        while not (child := processes.descendants(parent.pid)) or processes._states([parent.pid]) != {b"D"}:
            time.sleep(0.01)
        begin = time.monotonic()
        stopped, _ = processes.stop(os.getpid())
        seconds = time.monotonic() - begin
        states = processes._states(child), processes._states([parent.pid])
        parent.kill()
        processes.send(child, signal.SIGKILL)
        processes.send(stopped, signal.SIGCONT)
    assert states == ({b"T"}, {b"D"}) and {parent.pid, *child} <= set(stopped)
    assert 0.2 <= seconds < 0.9


def test_a_pid_that_was_a_strangers_is_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not descend is read once, and its directory looked at four times a second; others are in each look."""
    me = os.getpid()
    for name in ("_LEARN_SECONDS", "_VERIFY_SECONDS"):
        monkeypatch.setattr(processes, name, 600.0)
    monkeypatch.setattr(processes, "_strangers", {})
    processes.descendants(me)
    strangers = processes._strangers[me].inodes
    assert {"1", str(os.getppid())} <= strangers.keys() and str(me) not in strangers
    with subprocess.Popen(["sleep", "30"]) as child:
        try:
            assert child.pid in processes.descendants(me)
            inode = Path(f"/proc/{child.pid}").stat().st_ino
            strangers[str(child.pid)] = inode + 1  # of who had the pid before
            assert child.pid not in processes.descendants(me)
            monkeypatch.setattr(processes, "_VERIFY_SECONDS", 0.0)
            assert child.pid in processes.descendants(me)
            assert "1" in processes._strangers[me].inodes, "whose directory is the same is not read again"
            processes._strangers[me].inodes[str(child.pid)] = inode
            assert child.pid not in processes.descendants(me)
            monkeypatch.setattr(processes, "_LEARN_SECONDS", 0.0)
            assert child.pid in processes.descendants(me)
        finally:
            child.kill()


def test_strangers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is a stranger's child that comes later."""
    me, read = os.getpid(), list[set[str]]()
    for name in ("_LEARN_SECONDS", "_VERIFY_SECONDS"):
        monkeypatch.setattr(processes, name, 600.0)
    monkeypatch.setattr(processes, "_strangers", {})
    parents = processes._parents

    def noted(names: Iterable[str]) -> dict[int, int]:
        read.append(set(names))
        return parents(read[-1])

    monkeypatch.setattr(processes, "_parents", noted)
    with subprocess.Popen(["sleep", "30"]) as child:
        try:
            root = child.pid  # to which this process is a stranger
            assert processes.descendants(root) == []
            with subprocess.Popen(["sleep", "30"]) as later:
                try:
                    for _ in range(2):
                        assert processes.descendants(root) == []
                finally:
                    later.kill()
        finally:
            child.kill()
    assert str(me) in read[0] and str(me) not in read[1] | read[2]
    assert str(later.pid) in read[1] and str(later.pid) not in read[2]
    assert str(child.pid) in read[1] & read[2]


def test_whose_parent_was_gone_before_it_was_read_is_no_stranger() -> None:
    """It comes to the tree's keeper with the next look. Nor is one who seems to be his own forefather."""
    parents = {1: 0, 2: 0, 10: 1, 20: 10, 21: 20, 30: 2, 40: 39, 41: 40, 50: 51, 51: 50, 61: 60, 22: 21}
    assert processes._apart({20, 21, 22}, parents, {"60"}) == {1, 2, 10, 30, 61}


def test_the_thread_that_launches_moves_and_is_free_to_go(kind: SandboxKind) -> None:
    """It wakes where it was sent, may go anywhere afterwards, and another thread is left where it was."""
    source = """
import os, threading, torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        own = os.sched_getaffinity(0)
        return torch.tensor([len(own), len(os.sched_getaffinity(tid))])

def stay():
    global tid
    tid = threading.get_native_id()
    begun.set()
    threading.Event().wait()

begun = threading.Event()
threading.Thread(target=stay, daemon=True).start()
begun.wait()
"""
    cores = sorted(os.sched_getaffinity(0))
    with Session(Worker.start(Post(kind)), CPU, Deadlines()) as opened:
        opened.await_start()
        opened.load("solution.py", source, "ModelNew", [], 1, torch.float32, {})
        (worker, *_) = [
            pid for pid in processes.descendants(opened.process._keeper.pid) if len(processes.threads(pid)) > 1
        ]
        for core in (cores[-1], cores[0]):
            with opened.process.on_core(core):
                assert os.sched_getaffinity(worker) == {core}
                opened._ask("ping")
                assert _last_core(worker) == core
            opened.move_to(core)
            opened.run([[torch.zeros(1)]])
            (seen,) = opened.fetch(0, [torch.zeros(2, dtype=torch.int64)]).tensors or ()
            assert seen.tolist() == [len(cores)] * 2


def test_on_a_cpu_each_of_torchs_threads_has_a_core_and_the_solutions_have_all(post: Post) -> None:
    source = """
import os
import threading
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        torch.zeros(1 << 17).add_(1)
        threads = sorted(int(name) for name in os.listdir("/proc/self/task"))
        own = []
        thread = threading.Thread(target=lambda: own.append(len(os.sched_getaffinity(0))))
        thread.start()
        thread.join()
        held = [thread for thread in threads if len(os.sched_getaffinity(thread)) == 1]
        return torch.tensor([len(os.sched_getaffinity(0)), own[0], torch.get_num_threads() - len(held)])
"""
    cores = sorted(os.sched_getaffinity(0))
    with Session(Worker.start(post), CPU, Deadlines()) as opened:
        opened.await_start()
        opened.load("solution.py", source, "ModelNew", [], 1, torch.float32, {})
        assert len(opened._team) == torch.get_num_threads()
        for core in (cores[-1], cores[0]):
            opened.move_to(core)
            opened.run([[torch.zeros(1)]])
            (seen,) = opened.fetch(0, [torch.zeros(3, dtype=torch.int64)]).tensors or ()
            assert seen.tolist() == [len(cores), len(cores), 1]
            held = [os.sched_getaffinity(thread) for thread in opened._team]
            assert held == [set(cores), *({other} for other in cores_from(core)[1 : len(held)])]


def test_a_thread_that_is_no_longer_its_own_is_left_where_it_is() -> None:
    with Session(Worker.start(Post(SandboxKind.NATIVE)), CPU, Deadlines()) as opened:
        opened.await_start()
        before = os.sched_getaffinity(os.getpid())
        opened.process.keep_apart([os.getpid()], [min(before)])
        assert os.sched_getaffinity(os.getpid()) == before


def _last_core(pid: int) -> int:
    """Where its first thread ran last."""
    return int(Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[36])
