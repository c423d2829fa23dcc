"""The life of a sandboxed process: start, output, end, and that nothing of it is left."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from started import LIMITS, SECONDS, assert_next_works, start, wait_for

from kernelyard.core.errors import UsageError
from kernelyard.sandbox import bubblewrap
from kernelyard.sandbox.launch import (
    SandboxError,
    SandboxKind,
    bubblewrap_problem,
    choose,
    launch,
)
from kernelyard.sandbox.witness import _running


@pytest.mark.parametrize(
    ("code", "returncode", "text"),
    [
        ("pass", 0, "exit code 0"),
        ("import os; os._exit(3)", 3, "exit code 3"),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, "killed by signal SIGSEGV"),
        ("import os; os.abort()", -signal.SIGABRT, "killed by signal SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, "killed by signal SIGKILL"),
    ],
)
def test_the_end_is_described(kind: SandboxKind, code: str, returncode: int, text: str) -> None:
    with start(kind, code) as process:
        assert process.wait(SECONDS) == returncode
    assert process.describe_exit() == text
    assert process.exceeded is None


def test_streams_are_separate_and_complete(kind: SandboxKind) -> None:
    with start(kind, "import sys; print('out'); print('err', file=sys.stderr)") as process:
        process.wait(SECONDS)
    assert (process.stdout, process.stderr) == ("out\n", "err\n")


def test_a_hung_process_is_killed_at_once(kind: SandboxKind) -> None:
    code = (
        "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nprint('up', flush=True)\nwhile 1: pass"
    )
    with start(kind, code) as process:
        wait_for(lambda: process.stdout)
        assert process.wait(0.2) is None
        assert process.poll() is None
        assert process.describe_exit() == "still running"
        began = time.monotonic()
        process.kill()
        assert time.monotonic() - began < 3
        assert process.poll() == -signal.SIGKILL
        process.kill()
    assert_next_works(kind)


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sleep", [sys.argv[1], "30"])
    os._exit(0)
os.wait()
print("left", flush=True)
time.sleep(float(sys.argv[2]))
"""


# Long enough to be seen once: to look through a machine of 128 cores full of processes took more than 0.2 s.
@pytest.mark.parametrize("lives_on", ["30", "2"], ids=["killed", "ends by itself"])
def test_a_daemon_does_not_outlive_its_sandbox(kind: SandboxKind, lives_on: str) -> None:
    name = f"daemon-{secrets.token_hex(8)}"
    with start(kind, DAEMON, name, lives_on) as process:
        wait_for(lambda: _running(name))
        if lives_on == "2":
            assert process.wait(SECONDS) == 0
            assert not _running(name)
    assert not _running(name)
    assert_next_works(kind)


def test_a_process_that_ends_while_others_are_looked_for_is_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes = Path.read_bytes

    def gone(path: Path) -> bytes:
        raise ProcessLookupError(f"no such process: {path}")

    def read(path: Path) -> bytes:
        return read_bytes(path) if path.parts[2] == str(os.getpid()) else gone(path)

    monkeypatch.setattr(Path, "exists", gone)
    monkeypatch.setattr(Path, "read_bytes", read)
    own = Path(f"/proc/{os.getpid()}/cmdline").read_bytes().split(b"\0")[0].decode()
    assert _running(own) == [os.getpid()]


def test_the_keeper_need_not_look_for_the_end_of_the_last() -> None:
    """Whose context on a device takes a tenth of a second to end: looks at set times would be up to 50 ms late."""
    source = """
import os, select, signal, time
from kernelyard.sandbox import keeper

wake, woken = os.pipe()
os.set_blocking(woken, False)
signal.set_wakeup_fd(woken)
signal.signal(signal.SIGCHLD, lambda *_: None)
keeper.processes.descendants = lambda _: []
child = os.fork()
if child == 0:
    time.sleep(0.3)
    os._exit(7)
waits, wait = [], select.select
select.select = lambda *which: waits.append(wait(*which)) or waits[-1]
status = keeper._sweep(child, None, wake)
print(os.waitstatus_to_exitcode(status), *(bool(ready) for ready, _, _ in waits[-2:]))
"""
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert ran.stdout.split() == ["7", "False", "True"]


def test_a_daemon_outlives_a_plain_process() -> None:
    """The control: without a sandbox it stays."""
    name = f"daemon-{secrets.token_hex(8)}"
    subprocess.run([sys.executable, "-I", "-S", "-c", DAEMON, name, "0.2"], check=True, stdout=subprocess.DEVNULL)
    (left,) = _running(name)
    os.kill(left, signal.SIGKILL)


def test_the_tree_and_its_files_go_with_the_judge(kind: SandboxKind, tmp_path: Path) -> None:
    name = f"daemon-{secrets.token_hex(8)}"
    judge = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\n"
            "from kernelyard.sandbox.launch import SandboxKind, launch\n"
            f"command = [sys.executable, '-I', '-S', '-c', {DAEMON!r}, {name!r}, '30']\n"
            f"launch(command, kind=SandboxKind({kind.value!r}))\n"
            "time.sleep(30)",
        ],
        env={**os.environ, "PYTHONPATH": str(Path(bubblewrap.__file__).parents[2]), "TMPDIR": str(tmp_path)},
    )
    try:
        wait_for(lambda: _running(name))
    finally:
        judge.kill()
        judge.wait()
    wait_for(lambda: not _running(name))
    wait_for(lambda: not list(tmp_path.iterdir()))


def test_a_process_that_runs_takes_nothing_of_the_judge(kind: SandboxKind) -> None:
    """Who looks at it in the judge's own process stands between a timed request and the interpreter's lock."""
    with start(kind, "import time; time.sleep(30)"):
        time.sleep(0.2)
        before = _switches()
        time.sleep(0.5)
        assert all(count - before.get(task, 0) < 3 for task, count in _switches().items() if task != os.getpid())


def _switches() -> dict[int, int]:
    """How often each thread of this process that runs Python has gone to sleep so far; CUDA's own wake as they like."""
    found = {}
    for thread in threading.enumerate():
        task = Path(f"/proc/self/task/{thread.native_id}")
        lines = (task / "status").read_text().splitlines()
        found[int(task.name)] = next(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
    return found


def test_a_keeper_that_is_killed_is_an_end_like_any(kind: SandboxKind) -> None:
    with start(kind, "import time; time.sleep(30)") as process:
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(SECONDS) == -signal.SIGKILL
    assert process.exceeded is None
    assert_next_works(kind)


def test_nothing_is_left_behind(kind: SandboxKind, temporary: Path) -> None:
    code = (
        "import os\n"
        "os.makedirs('a/b'); open('a/b/file', 'w').write('x'); os.symlink('/etc', 'a/link')\n"
        "os.chmod('a/b', 0); os.chmod('a', 0)\n"
        "print(os.getcwd() == os.environ['HOME'] == os.environ['TMPDIR'])"
    )
    with start(kind, code) as process:
        assert process.wait(SECONDS) == 0, process.stderr
    assert process.stdout == "True\n"
    assert list(temporary.iterdir()) == []


def test_a_deep_directory_is_not_left_behind(kind: SandboxKind, temporary: Path) -> None:
    code = "import os\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')"
    with start(kind, code) as process:
        assert process.wait(SECONDS) == 0, process.stderr
    assert list(temporary.iterdir()) == []


def test_many_that_spin_are_killed_soon(kind: SandboxKind) -> None:
    """Its keeper has a share of the cores of its own."""
    code = (
        "import os, time\n"
        "for _ in range(100):\n"
        "    if os.fork() == 0: break\n"
        "print(flush=True)\n"
        "end = time.monotonic() + 20\n"
        "while time.monotonic() < end: pass"
    )
    with launch([sys.executable, "-c", code], kind=kind, limits=replace(LIMITS, processes=256)) as process:
        while not process.stdout:
            time.sleep(0.01)
        begin = time.monotonic()
        process.kill()
        assert time.monotonic() - begin < 10


def test_no_descriptor_of_the_judge_is_lost(kind: SandboxKind) -> None:
    assert_next_works(kind)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert_next_works(kind)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_descriptors_pass_in_both_directions(kind: SandboxKind) -> None:
    code = (
        "import os, socket, sys\n"
        "channel = socket.socket(fileno=int(sys.argv[1]))\n"
        "data, (given,), _, _ = socket.recv_fds(channel, 64, 1)\n"
        "made = os.memfd_create('made')\n"
        "os.write(made, os.pread(given, 64, 0)[::-1])\n"
        "os.pwrite(given, b'A', 0)\n"
        "socket.send_fds(channel, [data], [made])\n"
    )
    ours, theirs = socket.socketpair()
    ours.settimeout(SECONDS)
    given = os.memfd_create("given")
    os.write(given, b"abcdef")
    with ours, theirs, start(kind, code, str(theirs.fileno()), inherit=(theirs.fileno(),)) as process:
        theirs.close()
        socket.send_fds(ours, [b"hello"], [given])
        data, (made,), _, _ = socket.recv_fds(ours, 64, 1)
        assert data == b"hello"
        assert os.pread(made, 64, 0) == b"fedcba"
        assert os.pread(given, 64, 0) == b"Abcdef"
        assert ours.recv(1) == b"", "the judge sees the end of the process as the end of the stream"
        assert process.wait(SECONDS) == 0, process.stderr
    os.close(given)
    os.close(made)


def test_the_keeper_holds_no_end_of_the_channel(kind: SandboxKind) -> None:
    """A process that closes its channel and lives on is seen at once."""
    ours, theirs = socket.socketpair()
    ours.settimeout(SECONDS)
    code = "import os, sys, time; os.close(int(sys.argv[1])); time.sleep(30)"
    with ours, theirs, start(kind, code, str(theirs.fileno()), inherit=(theirs.fileno(),)) as process:
        theirs.close()
        assert ours.recv(1) == b""
        assert process.poll() is None


def test_only_what_was_inherited_is_open(kind: SandboxKind) -> None:
    secret = os.open("/proc/self/status", os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        code = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))), os.readlink('/proc/self/fd/0'))"
        with start(kind, code) as process:
            process.wait(SECONDS)
    finally:
        os.close(secret)
    assert process.stdout == "[0, 1, 2, 3] /dev/null\n", "3 is the directory that is being listed"


def test_a_command_that_is_not_there_is_no_fault_of_the_candidate() -> None:
    with pytest.raises(SandboxError, match="FileNotFoundError"):
        launch(["/nonexistent/program"], kind=SandboxKind.NATIVE)


def test_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    bubblewrap_problem.cache_clear()
    monkeypatch.setenv("KERNELYARD_BWRAP", "/nonexistent/bwrap")
    try:
        assert choose() is SandboxKind.NATIVE
        assert choose(SandboxKind.NONE) is SandboxKind.NONE
        with pytest.raises(UsageError, match="bwrap"):
            choose(SandboxKind.BUBBLEWRAP)
    finally:
        bubblewrap_problem.cache_clear()


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="tpu"):
        launch(["true"], kind=SandboxKind.NATIVE, device="tpu:0")
