"""The program inside of a witness: tries what a sandbox forbids and says how it went. Standard library only.

Everything it does is bounded and aimed at things that the witness planted, so it does no harm where a layer is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_CLONE_NEWUSER = 0x10000000
_PTRACE_SEIZE = 0x4206  # unlike PTRACE_ATTACH it does not stop its target
FORKS = 200
MEMORY_BYTES = 1 << 30
OUTPUT_BYTES = 64 << 20
LINGER_SECONDS = 20

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Run the mode in argv[1] with the JSON facts in argv[2]; `walls` prints one JSON object {layer: outcome}."""
    facts = json.loads(sys.argv[2])
    _MODES[sys.argv[1]](facts)


def _walls(facts: dict[str, Any]) -> None:
    attempts: dict[str, Callable[[], str]] = {
        "environment": lambda: _expect(facts["secret"] in os.environ.values(), "not among the variables"),
        "read": lambda: Path(facts["secret_file"]).read_text(),
        "write": lambda: f"{Path(facts['target_file']).write_text('overwritten')} bytes written",
        "network": lambda: _connect(facts["port"]),
        "sockets": lambda: _reach(facts["stream"], facts["datagrams"]),
        "processes of others": lambda: Path(f"/proc/{facts['decoy']}/cmdline").read_text(),
        "memory of others": lambda: f"{Path('/proc', str(facts['decoy']), 'environ').read_bytes()!r:.40}",
        "ptrace": lambda: _check(_libc.ptrace(_PTRACE_SEIZE, facts["decoy"], None, None), "attached"),
        "namespaces": lambda: _in_child(lambda: _libc.unshare(_CLONE_NEWUSER)),
        "kernel settings": lambda: _open_for_writing("/proc/sys/kernel/hostname"),
        "shared files": lambda: _open_one((__file__, os.__file__), os.O_WRONLY),
        "own root": lambda: _make_directory("/", "/dev"),
        "file size": lambda: _write_memory_file(facts["file_bytes"] + (1 << 20)),
        "open files": lambda: _open_many(facts["open_files"] + 1),
        "core dump": _core_dump,
        "leftovers": _segment,
        "signals": lambda: _kill(facts["decoy"]),
        "scheduling": lambda: _reschedule(facts["on_others"]),
        "other workers": lambda: _disturb(facts["other_worker"]),
    }
    if facts["bounded"]:
        attempts["read-only mounts"] = lambda: _touch_all(facts["read_only"])
        attempts["private files"] = lambda: _fill(facts["file_bytes"], "/tmp", "/dev/shm")
    if facts["other_devices"]:
        attempts["other devices"] = lambda: _open_one(facts["other_devices"], os.O_RDWR, may_lack=True)
    outcomes = {}
    for layer, attempt in attempts.items():
        try:
            outcomes[layer] = {"denied": False, "detail": attempt()}
        except Exception as error:
            outcomes[layer] = {"denied": True, "detail": f"{type(error).__name__}: {error}"}
    if facts["cuda"]:
        outcomes["device"] = _cuda()
    print(json.dumps(outcomes))


def _expect(found: bool, otherwise: str) -> str:
    if not found:
        raise LookupError(otherwise)
    return "found"


def _check(result: int, done: str) -> str:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return done


def _kill(pid: int) -> str:
    os.kill(pid, signal.SIGKILL)
    return "sent"


def _reschedule(calls: dict[str, list[int]]) -> str:
    """Make each of these calls on a child.

    A child is of the same user and the same walls: nothing but the filter keeps its parent from it.
    """
    if not calls:
        return "nothing was tried"
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        passed = [name for name, call in calls.items() if not _is_refused(*call, child)]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not passed:
        raise PermissionError(f"{', '.join(calls)}: {os.strerror(errno.EPERM)}")
    return f"{', '.join(passed)} came through"


def _is_refused(number: int, *arguments: int) -> bool:
    """Whether the filter answered: the kernel has other words for these arguments and zeros behind them, or obeys."""
    return int(_libc.syscall(number, *arguments, 0, 0, 0, 0, 0)) < 0 and ctypes.get_errno() == errno.EPERM


def _disturb(pid: int) -> str:
    """Kill another worker, or else open those of its files by which it can be slowed down or be the first to die."""
    with contextlib.suppress(OSError):
        return _kill(pid)
    files = [f"/proc/{pid}/{name}" for name in ("clear_refs", "autogroup", "oom_score_adj")]
    return _open_one(files, os.O_WRONLY, may_lack=True)


def _connect(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return "connected"


def _reach(stream: str, datagrams: str) -> str:
    """Connect to a socket with a path, or else send it a datagram, from a socket that was made for others, too."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as channel:
        channel.connect(stream)
        return "connected"
    for make in (lambda kind: [socket.socket(socket.AF_UNIX, kind)], lambda kind: socket.socketpair(type=kind)):
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
            with contextlib.suppress(OSError), contextlib.ExitStack() as ends:
                made = [ends.enter_context(end) for end in make(kind)]
                made[0].sendto(b"sent", datagrams)
                return f"sent by {kind.name}"
    raise PermissionError("neither a connection nor a datagram came through")


def _in_child(act: Callable[[], int]) -> str:
    """Try in a child, since success would change this process for good."""
    child = os.fork()
    if child == 0:
        os._exit(ctypes.get_errno() if act() < 0 else 0)
    error = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if error:
        raise OSError(error, os.strerror(error))
    return "entered"


def _open_for_writing(path: str) -> str:
    os.close(os.open(path, os.O_WRONLY))
    return "opened for writing"


def _write_memory_file(size: int) -> str:
    """In no directory, for a private one that is full refuses too: only the limit on a file's size bounds this one."""
    with os.fdopen(os.memfd_create("large"), "wb", buffering=0) as file:
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    return f"{size} bytes written"


def _open_one(paths: Sequence[str], flags: int, *, may_lack: bool = False) -> str:
    """Open one of these; raises what the last was refused with. What is not there is no refusal, but where it
    `may_lack`."""
    refusal: OSError | None = None
    for path in paths:
        try:
            os.close(os.open(path, flags))
        except FileNotFoundError as error:
            if not may_lack:
                return f"{path} is not there: nothing was tried"
            refusal = error
        except OSError as error:
            refusal = error
        else:
            return f"{path} opened"
    assert refusal is not None
    raise refusal


def _touch_all(paths: Sequence[str]) -> str:
    """Set the times of each to what they are; raises what the last was refused with.

    Here a read-only mount refuses with EROFS before permissions are asked, unlike in open: any other error is not the
    mount's. Where it does not refuse, nothing has changed.
    """
    refusal: OSError | None = None
    for path in paths:
        try:
            now = Path(path).stat()
            os.utime(path, ns=(now.st_atime_ns, now.st_mtime_ns))
        except OSError as error:
            if error.errno != errno.EROFS:
                return f"{path} is not read-only: {error}"
            refusal = error
        else:
            return f"{path} touched"
    assert refusal is not None
    raise refusal


def _make_directory(*places: str) -> str:
    refusal: OSError | None = None
    for place in places:
        path = Path(place, f"kernelyard-probe-{os.getpid()}")
        try:
            path.mkdir()
        except OSError as error:
            refusal = error
        else:
            path.rmdir()
            return f"{path} made"
    assert refusal is not None
    raise refusal


def _open_many(count: int) -> str:
    descriptors: list[int] = []
    try:
        for _ in range(count):
            descriptors.append(os.dup(0))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return f"{count} open"


def _fill(size: int, *places: str) -> str:
    """Two files, each below the limit of one, and together more than `size`; in the first place that takes them.

    A place that refuses for another reason than want of room has proved no bound.
    """
    refusal: OSError | None = None
    for place in places:
        files = [Path(place, f"filling-{i}") for i in range(2)]
        try:
            for path in files:
                with path.open("wb") as file:
                    for _ in range((size >> 20) * 3 // 4):
                        file.write(bytes(1 << 20))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                return f"{place} is not full: {error}"
            refusal = error
        else:
            return f"{2 * ((size >> 20) * 3 // 4)} MiB in {place}"
        finally:
            for path in filter(Path.exists, files):  # a read-only place refuses to unlink what is not there, too
                path.unlink()
    assert refusal is not None
    raise refusal


def _core_dump() -> str:
    resource.setrlimit(resource.RLIMIT_CORE, (2, 2))
    return "limit raised"


def _segment() -> str:
    """A segment of SysV shared memory stays when its maker has gone; this one is removed."""
    segment = _libc.shmget(0, 4096, 0o1600)
    made = _check(segment, "a segment made")
    _libc.shmctl(segment, 0, None)
    return made


def _cuda() -> dict[str, Any]:
    """Here success is what is wanted: the driver answers inside."""
    try:
        result = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        return {"denied": True, "detail": str(error)}
    return {"denied": result != 0, "detail": f"cuInit returned {result}"}


def _start(_facts: dict[str, Any]) -> None:
    """Nothing but start: that is what is asked."""


def _device(_facts: dict[str, Any]) -> None:
    outcome = _cuda()
    print(outcome["detail"])
    sys.exit(int(outcome["denied"]))


def _forks(_facts: dict[str, Any]) -> None:
    for count in range(FORKS):
        try:
            if os.fork() == 0:
                time.sleep(LINGER_SECONDS)
                os._exit(0)
        except OSError as error:
            print(f"fork {count + 1}: {type(error).__name__}: {error}")
            return
    time.sleep(1)
    print(f"{FORKS} forks")


def _memory(_facts: dict[str, Any]) -> None:
    kept = []
    for _ in range(MEMORY_BYTES >> 24):
        kept.append(b"\1" * (1 << 24))
    time.sleep(1)
    print(f"{MEMORY_BYTES} bytes held")


def _output(_facts: dict[str, Any]) -> None:
    line = "x" * (1 << 16)
    for _ in range(OUTPUT_BYTES >> 16):
        print(line)


def _daemon(facts: dict[str, Any]) -> None:
    """Leave a process behind that has another parent and another session, and go on until killed."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sleep", [facts["secret"], str(LINGER_SECONDS)])
        os._exit(0)
    os.wait()
    print("left behind", flush=True)
    time.sleep(LINGER_SECONDS)


_MODES: dict[str, Callable[[dict[str, Any]], None]] = {
    "start": _start,
    "device": _device,
    "walls": _walls,
    "forks": _forks,
    "memory": _memory,
    "output": _output,
    "daemon": _daemon,
}

if __name__ == "__main__":
    main()
