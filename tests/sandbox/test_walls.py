"""What a sandboxed process cannot do, each with the control that the same attempt succeeds without walls."""

import itertools
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelyard.core.errors import UsageError
from kernelyard.sandbox import bubblewrap, confine, devices, landlock, probe, seccomp, surroundings
from kernelyard.sandbox import launch as launching
from kernelyard.sandbox.launch import SandboxKind, bubblewrap_problem, launch
from kernelyard.sandbox.witness import LayerWitness, _bait, witness

SECONDS = 20.0
# What gets through without walls on every machine, for root and for others.
CONTROLS = {
    "environment",
    "read",
    "write",
    "network",
    "processes of others",
    "memory of others",
    "signals",
    "shared files",
    "open files",
    "file size",
    "leftovers",
}
BY_KEEPER = {"processes", "memory", "output", "daemon"}


def run(kind: SandboxKind, code: str, *arguments: str, **options: object) -> str:
    command = [sys.executable, "-c", code, *arguments]
    with launch(command, kind=kind, **options) as process:  # type: ignore[arg-type]
        assert process.wait(SECONDS) == 0, process.stderr
    return process.stdout.strip()


def by_layer(kind: SandboxKind) -> dict[str, LayerWitness]:
    return {record.layer: record for record in witness(kind)}


def test_every_layer_that_is_there_holds(kind: SandboxKind) -> None:
    records = by_layer(kind)
    assert records.keys() >= CONTROLS | BY_KEEPER
    assert [record for record in records.values() if record.available and not record.holds] == []
    if kind is SandboxKind.BUBBLEWRAP:
        assert all(record.available for record in records.values())


def test_without_walls_the_same_attempts_succeed() -> None:
    records = by_layer(SandboxKind.NONE)
    assert [layer for layer in CONTROLS if records[layer].holds] == []
    assert not any(records[layer].available for layer in CONTROLS)
    assert all(records[layer].holds for layer in BY_KEEPER), "these are the keeper's"


def _with(line: list[str], option: str, instead: str) -> list[str]:
    return [instead if word == option else word for word in line]


def _without(line: list[str], option: str, values: int) -> list[str]:
    kept, at = [], 0
    while at < len(line):
        if line[at] == option:
            at += values
        else:
            kept.append(line[at])
        at += 1
    return kept


@pytest.mark.parametrize(
    ("break_", "layer"),
    [
        (lambda line: _with(line, "--ro-bind", "--bind"), "shared files"),
        (lambda line: _without(line, "--remount-ro", 1), "own root"),
        (lambda line: _without(line, "--size", 1), "private files"),
    ],
)
def test_a_wall_that_is_broken_is_named(
    monkeypatch: pytest.MonkeyPatch, break_: Callable[[list[str]], list[str]], layer: str
) -> None:
    """Each of these was a hole that seventeen layers did not see."""
    if bubblewrap.program() is None:
        pytest.skip("no bubblewrap")
    line = bubblewrap.command_line
    monkeypatch.setattr(bubblewrap, "command_line", lambda *a, **k: break_(line(*a, **k)))
    record = by_layer(SandboxKind.BUBBLEWRAP)[layer]
    assert record.available and not record.holds, record.detail


@pytest.mark.parametrize("mount", ["/usr", "/sys", "/proc/sys", sys.prefix])
def test_one_mount_that_can_be_written_is_named(monkeypatch: pytest.MonkeyPatch, mount: str) -> None:
    """The package's and the interpreter's own files speak for the two mounts that they lie in."""
    if problem := bubblewrap_problem():
        pytest.skip(f"bubblewrap: {problem}")
    line = bubblewrap.command_line

    def broken(*arguments: Any, **options: Any) -> list[str]:
        words = line(*arguments, **options)
        pairs = itertools.pairwise([*words, ""])
        return ["--bind" if pair == ("--ro-bind", mount) else pair[0] for pair in pairs]

    monkeypatch.setattr(bubblewrap, "command_line", broken)
    record = by_layer(SandboxKind.BUBBLEWRAP)["read-only mounts"]
    assert record.available and not record.holds and mount in record.detail


@pytest.mark.parametrize(("name", "layer"), [("RLIMIT_FSIZE", "file size"), ("RLIMIT_NOFILE", "open files")])
def test_a_limit_that_is_not_set_is_named(
    kind: SandboxKind, monkeypatch: pytest.MonkeyPatch, name: str, layer: str
) -> None:
    """A full tmpfs refused what the limit on a file's size did not."""
    apply = launching._world

    def without(*arguments: Any) -> launching._World:
        world = apply(*arguments)
        del world.rlimits[name]
        return world

    monkeypatch.setattr(launching, "_world", without)
    record = by_layer(kind)[layer]
    assert record.available and not record.holds, record.detail


def test_a_private_directory_that_cannot_be_written_proves_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    if problem := bubblewrap_problem():
        pytest.skip(f"bubblewrap: {problem}")
    line = bubblewrap.command_line

    def broken(*arguments: Any, **options: Any) -> list[str]:
        words = line(*arguments, **options)
        end = words.index("--chdir")
        return [*words[:end], "--remount-ro", "/dev/shm", *words[end:]]

    monkeypatch.setattr(bubblewrap, "command_line", broken)
    record = by_layer(SandboxKind.BUBBLEWRAP)["private files"]
    assert not record.holds and "/dev/shm is not full" in record.detail


def test_another_gpu_is_tried_where_there_is_one(
    kind: SandboxKind, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "other devices" not in by_layer(kind) or devices.not_granted("cpu")
    nodes = [tmp_path / "nvidia0", tmp_path / "nvidia1"]
    for node in nodes:
        node.touch()
    monkeypatch.setattr(devices, "not_granted", lambda _: nodes)
    assert by_layer(kind)["other devices"].holds
    assert not by_layer(SandboxKind.NONE)["other devices"].holds


def test_what_is_not_there_to_be_written_is_no_denial() -> None:
    """A planted file that no sandbox shows proves nothing of those that it shows."""
    assert probe._open_one(("/nowhere",), os.O_WRONLY) == "/nowhere is not there: nothing was tried"
    with pytest.raises(FileNotFoundError):
        probe._open_one(("/nowhere",), os.O_RDWR, may_lack=True)


def test_a_missing_layer_is_reported_and_not_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    monkeypatch.setattr(seccomp, "supported", lambda: False)
    with launch(["true"], kind=SandboxKind.NATIVE) as process:
        assert {"landlock", "seccomp"} <= process.missing.keys()
    records = by_layer(SandboxKind.NATIVE)
    for layer in ("read", "network"):
        assert not records[layer].holds
        assert not records[layer].available
    assert "Landlock" in records["read"].detail
    assert records["file size"].holds


def test_the_environment_is_an_allow_list(kind: SandboxKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("SOME_PATH", "secret")
    monkeypatch.setenv("LD_PRELOAD", "")
    code = "import os; print(*sorted(os.environ), os.environ['MINE'])"
    *names, mine = run(kind, code, environment={"MINE": "passed"}).split()
    assert mine == "passed"
    allowed = {*surroundings.environment("/tmp", {}), "MINE", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}
    assert set(names) - allowed <= {"PWD", "LC_CTYPE"}
    assert {"HF_TOKEN", "SOME_PATH", "LD_PRELOAD"}.isdisjoint(names)


def test_imports_resolve_as_in_the_judge(kind: SandboxKind) -> None:
    import pydantic

    import kernelyard

    code = "import kernelyard, pydantic, sys; print(kernelyard.__file__, pydantic.__file__, sys.prefix)"
    assert run(kind, code).split() == [kernelyard.__file__, pydantic.__file__, sys.prefix]


def test_only_named_paths_can_be_read(kind: SandboxKind, tmp_path: Path) -> None:
    if kind is SandboxKind.NATIVE and not landlock.abi():
        pytest.skip("this kernel has no Landlock")
    hidden, named = tmp_path / "hidden.py", tmp_path / "named.py"
    for path in (hidden, named):
        path.write_text("contents")
    read = "import sys\ntry: print(open(sys.argv[1]).read())\nexcept OSError as error: print('denied')"
    assert run(SandboxKind.NONE, read, str(hidden)) == "contents"
    assert run(kind, read, str(hidden), readable=[named]) == "denied"
    assert run(kind, read, str(named), readable=[named]) == "contents"
    write = "import sys\ntry: open(sys.argv[1], 'w')\nexcept OSError as error: print('denied')"
    assert run(kind, write, str(named), readable=[named]) == "denied"
    assert named.read_text() == "contents"


def test_only_private_places_can_be_written(kind: SandboxKind) -> None:
    if kind is SandboxKind.NATIVE and not landlock.abi():
        pytest.skip("this kernel has no Landlock")
    code = (
        "import os\nwritable = []\n"
        "for directory in ('/', '/dev', '/dev/shm', '/etc', '/usr', '/var/tmp', '/tmp', os.environ['HOME']):\n"
        "    name = f'{directory}/written'\n"
        "    try: open(name, 'w').close(); os.unlink(name); writable.append(directory)\n"
        "    except OSError: pass\n"
        "print(writable, os.environ['HOME'])\n"
    )
    *places, home = run(kind, code).replace("'", "").split()
    expected = ["/dev/shm", "/tmp", "/tmp"] if kind is SandboxKind.BUBBLEWRAP else [home]
    assert " ".join(places).strip("[]").split(", ") == expected


def test_no_abstract_socket_of_the_judge_can_be_reached(kind: SandboxKind) -> None:
    if kind is SandboxKind.NATIVE and landlock.abi() < 6:
        pytest.skip("Landlock of this kernel has no scopes")
    address = f"\0kernelyard-{os.getpid()}"
    code = (
        "import socket, sys\nchannel = socket.socket(socket.AF_UNIX)\n"
        "try: channel.connect('\\0' + sys.argv[1]); print('connected')\n"
        "except OSError: print('denied')"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        assert run(SandboxKind.NONE, code, address[1:]) == "connected"
        assert run(kind, code, address[1:]) == "denied"


def test_who_connects_under_a_tool_reaches_its_own_sockets_and_no_others(tmp_path: Path) -> None:
    code = (
        "import os, socket, sys\nown = socket.socket(socket.AF_UNIX); own.bind('\\0own'); own.listen()\n"
        "for name in ('\\0own', '\\0' + sys.argv[1], sys.argv[2]):\n"
        "    channel = socket.socket(socket.AF_UNIX)\n"
        "    try: channel.connect(name); print('connected')\n"
        "    except OSError: print('denied')"
    )
    if bubblewrap.program() is None:
        pytest.skip("no bubblewrap")
    line = [sys.executable, "-c", code, f"kernelyard-{os.getpid()}", str(tmp_path / "s")]
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as stream:
        abstract.bind(f"\0kernelyard-{os.getpid()}")
        abstract.listen()
        stream.bind(str(tmp_path / "s"))
        stream.listen()
        assert run(SandboxKind.BUBBLEWRAP, *line[2:], connects=True).split() == ["connected", "denied", "denied"]
        assert run(SandboxKind.NONE, *line[2:]).split() == ["connected"] * 3
    with pytest.raises(UsageError, match="expected bubblewrap"):
        launch(line, kind=SandboxKind.NATIVE, connects=True)


@pytest.mark.parametrize("path", ["/etc/shadow", "/root", "/home", "/var", "/run"])
def test_what_holds_secrets_cannot_be_listed_or_read(kind: SandboxKind, path: str) -> None:
    if kind is SandboxKind.NATIVE and not landlock.abi():
        pytest.skip("this kernel has no Landlock")
    if not Path(path).exists():
        pytest.skip(f"no {path} here")
    code = (
        "import os, sys\npath = sys.argv[1]\n"
        "try: found = os.listdir(path) if os.path.isdir(path) else open(path).read()\n"
        "except OSError: found = []\n"
        "print(found)"
    )
    inside = run(kind, code, path)
    # Under bubblewrap a directory on the way to the interpreter exists, with nothing but that way in it.
    way = {
        entry.parts[2] for entry in surroundings.readable_paths() if entry.is_relative_to(path) and str(entry) != path
    }
    assert inside in ("[]", str(sorted(way)))


def test_the_judges_working_directory_is_hidden(
    kind: SandboxKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "problem.py").write_text("answers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert tmp_path not in surroundings.readable_paths()
    code = "import os, sys; print(sys.argv[1] in sys.path, os.path.realpath('.') == sys.argv[1])"
    assert run(kind, code, str(tmp_path)) == "False False"


def test_no_address_family_but_unix(kind: SandboxKind) -> None:
    if not seccomp.supported():
        pytest.skip(f"no filter for {platform.machine()}")
    code = (
        "import socket\n"
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_UNIX):\n"
        "    for type in (socket.SOCK_DGRAM, socket.SOCK_STREAM):\n"
        "        try: socket.socket(family, type).close(); print(family.name, type.name)\n"
        "        except OSError: pass\n"
    )
    assert "AF_INET" in run(SandboxKind.NONE, code)
    assert run(kind, code) == "AF_UNIX SOCK_STREAM"


def test_denied_calls(kind: SandboxKind) -> None:
    """By number, with arguments that would fail with another error than EPERM if the filter let them through."""
    if not seccomp.supported():
        pytest.skip(f"no filter for {platform.machine()}")
    code = (
        "import ctypes, errno\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "passed = []\n"
        f"for number in {sorted(seccomp._DENIED[platform.machine()].values())}:\n"
        "    libc.syscall(number, -1, -1, -1, -1, -1)\n"
        "    passed += [] if ctypes.get_errno() == errno.EPERM else [number]\n"
        "print(passed)"
    )
    assert run(kind, code) == "[]"


def test_nothing_in_the_kernel_outlives_the_process(kind: SandboxKind) -> None:
    """Segments and queues of SysV and POSIX stay when their maker has gone; the control makes and removes them."""
    if not seccomp.supported():
        pytest.skip(f"no filter for {platform.machine()}")
    code = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "segment, queue = libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600)\n"
        "sets, posix = libc.semget(0, 1, 0o1600), libc.mq_open(b'/kernelyard-test', 0o102, 0o600, None)\n"
        "print(segment >= 0, queue >= 0, sets >= 0, posix >= 0)\n"
        "libc.shmctl(segment, 0, None); libc.msgctl(queue, 0, None); libc.semctl(sets, 0, 0)\n"
        "posix >= 0 and libc.mq_unlink(b'/kernelyard-test')"
    )
    assert run(SandboxKind.NONE, code).startswith("True True True")
    assert run(kind, code) == "False False False False"


def test_killing_everyone_ends_only_oneself(kind: SandboxKind) -> None:
    """Also the worker of another evaluation lives on, which under native walls has the same user."""
    if kind is SandboxKind.NATIVE and landlock.abi() < 6:
        pytest.skip("Landlock of this kernel has no scopes")
    sleep = [sys.executable, "-I", "-S", "-c", "import time; print('up', flush=True); time.sleep(30)"]
    code = "import os, signal\ntry: os.kill(-1, signal.SIGKILL)\nexcept OSError: pass"
    with launch(sleep, kind=kind) as other:
        while "up" not in other.stdout:
            assert other.poll() is None
        with launch([sys.executable, "-I", "-S", "-c", code], kind=kind) as process:
            assert process.wait(SECONDS) is not None
        assert other.poll() is None


def test_a_core_goes_nowhere(kind: SandboxKind) -> None:
    """A limit of 1 is the one that also keeps the kernel from feeding a program that core_pattern names."""
    code = "import resource; print(*resource.getrlimit(resource.RLIMIT_CORE))"
    assert run(kind, code) == "1 1"


def test_threads_and_subprocesses_work(kind: SandboxKind) -> None:
    """clone3 is refused, so libc must fall back to clone."""
    code = (
        "import subprocess, threading\n"
        "done = []\n"
        "threads = [threading.Thread(target=done.append, args=(1,)) for _ in range(8)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "print(len(done), subprocess.run(['ls', '/usr'], capture_output=True, check=True).returncode)\n"
    )
    assert run(kind, code) == "8 0"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a process another user")
def test_root_gives_up_its_identity() -> None:
    code = (
        "import os; lines = open('/proc/self/status').read().splitlines()\n"
        "print(os.getuid(), *(line.split()[1] for line in lines if line.startswith(('CapEff', 'NoNewPrivs'))))"
    )
    uid, effective, no_new_privileges = run(SandboxKind.NATIVE, code).split()
    assert no_new_privileges == "1"
    # With Landlock one capability may stay, to read an interpreter that other users cannot reach.
    assert int(effective, 16) in (0, 1 << confine._CAP_DAC_READ_SEARCH)
    assert int(uid) != 0 or not landlock.abi()


def test_the_keeper_starts_without_heavy_imports() -> None:
    code = (
        "import sys; sys.path.append(sys.argv[1]); import kernelyard.sandbox.keeper\n"
        "print(sorted({'torch', 'pydantic', 'numpy', 'subprocess', 'asyncio'} & set(sys.modules)))"
    )
    source = str(Path(surroundings.__file__).parents[2])
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, source], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_decoy_is_on_none_of_the_judges_streams() -> None:
    """It outlives a judge that is interrupted: `kernelyard eval ... | tee log` came back 20 s after Ctrl-C."""
    with _bait() as bait:
        held = {Path(f"/proc/{bait.decoy.pid}/fd/{stream}").readlink() for stream in (0, 1, 2)}
    assert held == {Path(os.devnull)}
