"""What a sandboxed process cannot do to another one that times or is timed, and can do to itself."""

import contextlib
import errno
import json
import os
import platform
import socket
import struct
import sys
from pathlib import Path

import pytest

from kernelyard.sandbox import landlock, native, processes, seccomp
from kernelyard.sandbox.launch import SandboxedProcess, SandboxKind, _world, launch
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.witness import witness

SECONDS = 20.0
ARCHITECTURES = sorted(seccomp._NUMBERS)
# What is no process: all of the caller's group and of its user, for setpriority and for ioprio_set.
GROUPS_AND_USERS = {"setpriority": [(1, 0), (2, 0)], "ioprio_set": [(2, 0), (3, 0)]}
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a process another user")


@pytest.fixture
def filtered() -> None:
    if not seccomp.supported():
        pytest.skip(f"no filter for {platform.machine()}")


def run(kind: SandboxKind, code: str, *arguments: str) -> str:
    with launch([sys.executable, "-I", "-S", "-c", code, *arguments], kind=kind) as process:
        assert process.wait(SECONDS) == 0, process.stderr
    return process.stdout.strip()


def answer(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the kernel would make of a call: the filter's program, run."""
    words = struct.pack("=iIQ6Q", number, audit, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    steps, at, held = list(struct.iter_unpack("=HBBI", program)), 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            held = struct.unpack_from("=I", words, value)[0]
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_no_pid_but_the_callers_own_on_any_architecture(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    program, denied, audit = seccomp.program(), seccomp._ERRNO | errno.EPERM, seccomp._NUMBERS[machine][0]
    calls = seccomp.on_others()
    assert len(calls) == 9
    for name, call in calls.items():
        assert answer(program, audit, *call, 0) == seccomp._ALLOW, name
        for pid in (1, 4711, 2**32 - 1):
            assert answer(program, audit, *call, pid) == denied, name
        for several in GROUPS_AND_USERS.get(name, []):
            assert answer(program, audit, call[0], *several) == denied, name


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_what_would_wake_oneself(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    program, (audit, *_, fcntl) = seccomp.program(), seccomp._NUMBERS[machine]
    timer = seccomp._DENIED[machine]["timer_create"]
    for call, denied in (((timer, 1), True), ((fcntl, 7, 10, 18), True), ((fcntl, 10, 4, 10), False)):
        assert answer(program, audit, *call) == (seccomp._ERRNO | errno.EPERM if denied else seccomp._ALLOW)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_no_socket_that_reaches_an_address(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams connect to none, and what carries datagrams, which need no connection, is not made."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    program, (audit, *makers, _, _, _) = seccomp.program(), seccomp._NUMBERS[machine]
    flags = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    for call in makers:
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            assert answer(program, audit, call, socket.AF_UNIX, kind | flags) == seccomp._ALLOW
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
            assert answer(program, audit, call, socket.AF_UNIX, kind | flags) == seccomp._ERRNO | errno.EACCES
        assert answer(program, audit, call, socket.AF_INET, socket.SOCK_STREAM) == seccomp._ERRNO | errno.EACCES
    connect = seccomp._DENIED[machine]["connect"]
    assert answer(program, audit, connect, 3) == seccomp._ERRNO | errno.EPERM
    tool = seccomp.program(connects=True)
    assert answer(tool, audit, connect, 3) == seccomp._ALLOW
    assert answer(tool, audit, makers[0], socket.AF_INET, socket.SOCK_STREAM) == seccomp._ERRNO | errno.EACCES


def test_the_numbers_are_the_kernels(tmp_path: Path) -> None:
    """Of the architecture that this machine is not, by the header that all but x86 share."""
    header = Path("/usr/include/asm-generic/unistd.h")
    if not header.exists():
        pytest.skip("no headers of the kernel's")
    known = dict(line.split()[1:3] for line in header.read_text().splitlines() if line.startswith("#define __NR"))
    names = ("socket", "socketpair", "clone", "prctl", "fcntl")
    table = seccomp._OF_A_PROCESS["aarch64"] | dict(zip(names, seccomp._NUMBERS["aarch64"][1:], strict=True))
    table |= {name: seccomp._DENIED["aarch64"][name] for name in ("connect", "timer_create")}
    found = {name: known[f"__NR_{name}"] for name in table}
    assert {name: known.get(number, number) for name, number in found.items()} == {
        name: str(number) for name, number in table.items()
    }


@pytest.mark.usefixtures("filtered")
def test_another_process_is_moved_by_none_of_these_and_oneself_by_all(kind: SandboxKind) -> None:
    """On a child, which nothing but the filter keeps from its parent; zeros behind the pid change nothing."""
    code = (
        "import ctypes, errno, json, os, signal, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def refused(call, pid):\n"
        "    return libc.syscall(*call, pid, 0, 0, 0, 0, 0) < 0 and ctypes.get_errno() == errno.EPERM\n"
        "child = os.fork()\n"
        "child or signal.pause()\n"
        "calls = json.loads(sys.argv[1])\n"
        "print([name for name in calls if not refused(calls[name], child)],\n"
        "      [name for name in calls if refused(calls[name], 0)])\n"
        "os.kill(child, signal.SIGKILL)"
    )
    calls = json.dumps(seccomp.on_others())
    assert run(SandboxKind.NONE, code, calls) == f"{[*seccomp.on_others()]} []"
    assert run(kind, code, calls) == "[] []"


@pytest.mark.usefixtures("filtered")
def test_its_own_cores_and_priority_are_its_own_affair(kind: SandboxKind) -> None:
    """As threads of OpenMP's and whoever pins itself need it; a thread that names itself by number is refused."""
    code = (
        "import os, threading\n"
        "core = min(os.sched_getaffinity(0))\n"
        "def pin():\n"
        "    os.sched_setaffinity(0, {core})\n"
        "    print(os.sched_getaffinity(0) == {core}, os.nice(3), flush=True)\n"
        "    try: os.sched_setaffinity(threading.get_native_id(), {core}); print('by number')\n"
        "    except PermissionError: print('not by number')\n"
        "thread = threading.Thread(target=pin)\n"
        "thread.start(); thread.join()\n"
        "print(os.getpriority(os.PRIO_PROCESS, 0))"
    )
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert run(kind, code).split("\n") == [f"True {before + 3}", "not by number", str(before)]


@pytest.mark.usefixtures("filtered")
def test_no_mark_keeps_others_from_the_hyperthread_beside_it(kind: SandboxKind) -> None:
    code = (
        "import ctypes, errno, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.prctl(62, 1, 0, 0, 0) < 0 and ctypes.get_errno() == errno.EPERM, libc.prctl(38, 1, 0, 0, 0))"
    )
    assert run(SandboxKind.NONE, code).startswith("False")
    assert run(kind, code) == "True 0"


def test_nobody_may_put_itself_before_others(kind: SandboxKind) -> None:
    """Whatever the judge may do: a limit can be lowered by anyone, and raised by root alone."""
    with contextlib.ExitStack() as undo:
        rlimits = _world(["true"], kind, Limits(), [], [], None, undo).rlimits
    assert rlimits["RLIMIT_NICE"] == rlimits["RLIMIT_RTPRIO"] == 0


@pytest.mark.usefixtures("filtered")
@pytest.mark.parametrize("name", ["sched_setaffinity", "setpriority", "move_pages"])
def test_a_call_that_the_filter_lets_through_is_named(
    kind: SandboxKind, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.delitem(seccomp._OF_A_PROCESS[platform.machine()], name)
        program = seccomp.program()
    monkeypatch.setattr(seccomp, "program", lambda **_: program)
    record = next(record for record in witness(kind) if record.layer == "scheduling")
    assert record.available and not record.holds and record.detail == f"{name} came through"


def test_without_a_filter_nothing_is_said_to_be_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "a new one")
    record = next(record for record in witness(SandboxKind.NATIVE) if record.layer == "scheduling")
    assert not record.available and not record.holds and record.detail.startswith("nothing was tried; the call numbers")


def other_worker() -> SandboxedProcess:
    return launch(["sleep", "60"], kind=SandboxKind.NATIVE)


def without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    # A shell and what it starts are read by anyone, wherever the interpreter lies.
    monkeypatch.setattr(native, "_anyone_reads", lambda _: True)


@only_root
@pytest.mark.parametrize(
    "attack", ["kill -STOP {}", "echo 5 > /proc/{}/clear_refs", "echo 999 > /proc/{}/oom_score_adj"]
)
def test_workers_of_roots_are_kept_apart_by_their_users_alone(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_landlock(monkeypatch)

    def attacked() -> int | None:
        with other_worker() as other:
            pid = processes.descendants(other.pid)[0]
            with launch(["sh", "-c", attack.format(pid)], kind=SandboxKind.NATIVE) as process:
                return process.wait(SECONDS)

    assert attacked() != 0
    monkeypatch.setattr(native, "_are_mapped", lambda *_: False)
    assert attacked() == 0, "of one user they are at each other's mercy"


@only_root
def test_where_users_are_few_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_are_mapped", lambda *_: False)
    with launch(["id", "-u"], kind=SandboxKind.NATIVE) as process:
        assert process.wait(SECONDS) == 0
        assert process.stdout == f"{native.NOBODY}\n" and process.missing.keys() == {"own uid"}


@pytest.mark.parametrize(
    ("lines", "mapped"),
    [
        ("         0          0 4294967295\n", True),
        ("0 100000 65536\n", False),
        ("0 1000 1\n1 100000 1879048192\n", False),
        ("0 0 1000\n1000 70000 2147483648\n", True),
    ],
)
def test_which_users_a_namespace_has(lines: str, mapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: lines)
    assert native._are_mapped(native._FIRST_USER, native._USERS) is mapped


@only_root
def test_two_workers_have_two_users_and_files_of_their_own() -> None:
    with launch(["sh", "-c", "id -u; stat -c %u .; sleep 60"], kind=SandboxKind.NATIVE) as one:
        with launch(["sh", "-c", "id -u; stat -c %u ."], kind=SandboxKind.NATIVE) as two:
            assert two.wait(SECONDS) == 0
        assert one.poll() is None
    (first, owner), (second, its_owner) = one.stdout.split(), two.stdout.split()
    assert first == owner == str(native._FIRST_USER + one.pid)
    assert second == its_owner == str(native._FIRST_USER + two.pid)


def test_proc_is_read_only_where_no_device_needs_it(tmp_path: Path) -> None:
    """Of one user's processes each could slow down the others by writing there."""
    if not landlock.abi():
        pytest.skip("this kernel has no Landlock")
    code = "try: open('/proc/self/comm', 'w').close(); print('opened')\nexcept PermissionError: print('refused')"
    assert run(SandboxKind.NONE, code) == "opened"
    assert run(SandboxKind.NATIVE, code) == "refused"
    grants = native.plan(tmp_path, [], [Path("/dev/null")], None).walls.grants
    assert grants is not None and ("/proc", landlock.READ | landlock.WRITE) in grants
