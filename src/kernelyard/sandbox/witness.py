"""Proof that each layer of a sandbox stands: something inside tries the forbidden thing, and what came of it is shown.

Where the process inside could lie, the judge's side looks for itself: is the planted file unchanged, did the listener
hear anyone, is the decoy alive, is the daemon gone. `python -m kernelyard.sandbox.witness [KIND] [DEVICE]` prints it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelyard.core.errors import UsageError
from kernelyard.core.layers import LayerWitness
from kernelyard.sandbox import bubblewrap, devices, probe, processes, seccomp, surroundings
from kernelyard.sandbox.launch import SandboxedProcess, SandboxError, SandboxKind, choose, launch
from kernelyard.sandbox.limits import MIB, Limits

_LIMITS = Limits(memory_bytes=128 * MIB, processes=64, file_bytes=8 * MIB, output_bytes=MIB, open_files=256)
# Each attempt takes less than a second; a machine that others load must not make a wall look as if it fell.
_SECONDS = 30.0
_VARIABLE = "KERNELYARD_WITNESS"

_TRIED = {
    "environment": "find a secret variable of the judge's",
    "read": "read a planted file outside",
    "write": "write a planted file outside",
    "network": "connect to a listener of the judge's on loopback",
    "sockets": "connect to a socket of the judge's with a path, or send it a datagram",
    "processes of others": "see a process of the judge's in /proc",
    "memory of others": "read the environment of a process of the judge's",
    "ptrace": "attach to a process of the judge's",
    "signals": "kill a process of the judge's",
    "scheduling": "move and renice another process, move its memory and set its limits",
    "other workers": "kill another worker, and open its files in /proc for writing",
    "namespaces": "become root of a new user namespace",
    "kernel settings": "open a kernel setting for writing",
    "shared files": "open the package's and the interpreter's own files for writing",
    "read-only mounts": "set the times of every file and directory that is shared",
    "own root": "make a directory in / and in /dev",
    "private files": f"fill its private directories with more than {_LIMITS.file_bytes >> 20} MiB, in smaller files",
    "open files": f"have more than {_LIMITS.open_files} files open",
    "other devices": "open an NVIDIA GPU that was not granted",
    "file size": f"write a file in memory of more than {_LIMITS.file_bytes >> 20} MiB",
    "core dump": "raise the limit on core dumps",
    "leftovers": "make shared memory that outlives its process",
    "processes": f"fork {probe.FORKS} times under a limit of {_LIMITS.processes}",
    "memory": f"hold {probe.MEMORY_BYTES >> 20} MiB under a limit of {_LIMITS.memory_bytes >> 20} MiB",
    "output": f"print {probe.OUTPUT_BYTES >> 20} MiB under a limit of {_LIMITS.output_bytes >> 20} MiB",
    "daemon": "leave a process behind by two forks and an own session",
    "device": "cuInit on the granted device, which must succeed",
}
# Without the layers of the native sandbox named here, a machine cannot be blamed for what gets through.
_NEEDS = {
    "read": {"landlock"},
    "write": {"landlock"},
    "shared files": {"landlock"},
    "own root": {"landlock"},
    "other devices": {"landlock"},
    "network": {"seccomp"},
    "sockets": {"seccomp"},
    "memory of others": {"landlock", "uid"},
    "ptrace": {"seccomp"},
    "signals": {"landlock", "uid"},
    "scheduling": {"seccomp"},
    "other workers": {"landlock", "uid", "own uid"},
    "namespaces": {"seccomp"},
    "leftovers": {"seccomp"},
    "kernel settings": {"landlock", "uid"},
    "processes of others": {"pid namespace"},
}


def witness(kind: SandboxKind, device: str = "cpu") -> list[LayerWitness]:
    """One record for every layer, in about a second. Raises SandboxError where nothing starts inside."""
    records = _walls(kind, device)
    records += [_limit(kind, layer, mode) for layer, mode in _LIMIT_MODES.items()]
    records.append(_daemon(kind))
    return records


_standing: dict[tuple[SandboxKind, str], tuple[LayerWitness, ...]] = {}
_witnessing = threading.Lock()


def standing(kind: SandboxKind, device: str = "cpu") -> tuple[LayerWitness, ...]:
    """What `witness` saw, tried once in the life of this process; nothing for SandboxKind.NONE, which has no layers.

    Raises SandboxError, each time anew, where a layer that this machine has does not hold.
    """
    if kind is SandboxKind.NONE:
        return ()
    with _witnessing:
        if (kind, device) not in _standing:
            records = tuple(witness(kind, device))
            if fallen := [record for record in records if record.available and not record.holds]:
                told = "; ".join(f"{record.layer}: {record.detail}" for record in fallen)
                raise SandboxError(f"the {kind.value} sandbox does not hold: {told}")
            _standing[kind, device] = records
        return _standing[kind, device]


def fallen(kind: SandboxKind, device: str) -> str:
    """Why nothing of a stranger's is to run on `device`, as `standing` says it; empty where all layers hold."""
    try:
        standing(kind, device)
    except (SandboxError, UsageError) as error:  # a device whose node has gone
        return f"{device}: {error}"
    return ""


_LIMIT_MODES = {"processes": "forks", "memory": "memory", "output": "output"}


def _walls(kind: SandboxKind, device: str) -> list[LayerWitness]:
    with _bait() as bait, launch(["sleep", "60"], kind=kind, limits=_LIMITS, device=device) as other:
        facts = bait.facts | {
            "cuda": devices.is_nvidia(device),
            "on_others": seccomp.on_others(),
            "other_worker": processes.descendants(other.pid)[0],
            "other_devices": [str(node) for node in devices.not_granted(device)],
            # Natively they are watched, and who fills them is ended.
            "bounded": kind is SandboxKind.BUBBLEWRAP,
            "read_only": [*map(str, surroundings.readable_paths()), "/sys", *bubblewrap.kernel_settings()],
        }
        with _start(kind, "walls", facts, device) as process:
            process.wait(_SECONDS)
        missing = process.missing
        try:
            outcomes: dict[str, dict[str, Any]] = json.loads(process.stdout)
        except ValueError:
            raise SandboxError(f"the probe {process.describe_exit()}: {process.stderr.strip()[-500:]}") from None
        # The judge's own look overrules what the inside claims.
        seen = bait.happened() | {"other workers": other.poll() is not None}
        for layer, happened in seen.items():
            if happened and outcomes[layer]["denied"]:
                outcomes[layer] = {"denied": False, "detail": "it happened, whatever the probe says"}
    if kind is not SandboxKind.BUBBLEWRAP:
        missing = missing | {"pid namespace": "only bubblewrap has one"}
    records = []
    for layer, outcome in outcomes.items():
        holds = outcome["denied"] != (layer == "device")
        reasons = [missing[name] for name in sorted(_NEEDS.get(layer, set()) & missing.keys())]
        detail = "; ".join([outcome["detail"], *([] if holds else reasons)])
        available = holds or (kind is not SandboxKind.NONE and not reasons)
        records.append(_record(layer, holds=holds, available=available, detail=detail))
    return records


def _limit(kind: SandboxKind, layer: str, mode: str) -> LayerWitness:
    with _start(kind, mode, {}) as process:
        process.wait(_SECONDS)
    if process.exceeded == layer:
        return _record(layer, holds=True, available=True, detail=f"killed by the keeper: {layer} exceeded")
    holds = layer == "processes" and "Error" in process.stdout
    detail = process.stdout[-200:].strip() or process.describe_exit()
    return _record(layer, holds=holds, available=True, detail=detail)


def _daemon(kind: SandboxKind) -> LayerWitness:
    name = f"kernelyard-daemon-{secrets.token_hex(8)}"
    with _start(kind, "daemon", {"secret": name}) as process:
        deadline = time.monotonic() + _SECONDS
        while not (seen := _running(name)) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        began = time.monotonic()
        process.kill()
        milliseconds = (time.monotonic() - began) * 1e3
    left = _running(name)
    detail = f"pid {seen[0]} gone {milliseconds:.0f} ms after the kill" if seen else "the daemon never ran"
    if left:
        detail = f"pid {left[0]} still runs"
    return _record("daemon", holds=bool(seen) and not left, available=True, detail=detail)


def _record(layer: str, *, holds: bool, available: bool, detail: str) -> LayerWitness:
    return LayerWitness(layer=layer, tried=_TRIED[layer], holds=holds, available=available, detail=detail)


@dataclass(frozen=True)
class _Bait:
    """What the judge's side planted, and can look at afterwards."""

    secret: str
    secret_file: Path
    target_file: Path
    listener: socket.socket
    stream: socket.socket
    datagrams: socket.socket
    decoy: subprocess.Popen[bytes]

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "secret": self.secret,
            "secret_file": str(self.secret_file),
            "target_file": str(self.target_file),
            "port": self.listener.getsockname()[1],
            "stream": self.stream.getsockname(),
            "datagrams": self.datagrams.getsockname(),
            "decoy": self.decoy.pid,
            "file_bytes": _LIMITS.file_bytes,
            "open_files": _LIMITS.open_files,
        }

    def happened(self) -> dict[str, bool]:
        """By layer, whether the forbidden thing was done, as seen from outside."""
        return {
            "write": self.target_file.read_text() != "untouched",
            "network": _has_come(self.listener),
            "sockets": _has_come(self.stream) or _has_come(self.datagrams),
            "signals": self.decoy.poll() is not None,
        }


def _has_come(place: socket.socket) -> bool:
    """Whether a connection or a datagram has."""
    return bool(select.select([place], [], [], 0)[0])


@contextlib.contextmanager
def _bait() -> Iterator[_Bait]:
    secret = secrets.token_hex(16)
    with (
        tempfile.TemporaryDirectory(prefix="witness-") as directory,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        secret_file, target_file = Path(directory, "secret"), Path(directory, "target")
        secret_file.write_text(secret)
        target_file.write_text("untouched")
        for place, name in ((stream, "stream"), (datagrams, "datagrams")):
            place.bind(f"{directory}/{name}")
        stream.listen()
        # Open to everyone: what keeps the process inside away must be the sandbox and not the permissions.
        Path(directory).chmod(0o777)
        for path in (target_file, Path(directory, "stream"), Path(directory, "datagrams")):
            path.chmod(0o666)
        os.environ[_VARIABLE] = secret
        # Not on the judge's own streams: who reads them would wait for it where the judge is interrupted meanwhile.
        nowhere = subprocess.DEVNULL
        decoy = subprocess.Popen(["sleep", "20"], stdin=nowhere, stdout=nowhere, stderr=nowhere)
        try:
            yield _Bait(secret, secret_file, target_file, listener, stream, datagrams, decoy)
        finally:
            del os.environ[_VARIABLE]
            decoy.kill()
            decoy.wait()


def _start(kind: SandboxKind, mode: str, facts: dict[str, Any], device: str = "cpu") -> SandboxedProcess:
    command = [sys.executable, "-I", "-S", probe.__file__, mode, json.dumps(facts)]
    return launch(command, kind=kind, limits=_LIMITS, device=device)


def _running(name: str) -> list[int]:
    """Pids of the processes whose first argument is `name`."""
    found = []
    # Not by a pattern of pathlib's, which raises where a process ends between being listed and being looked at.
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit() and (path / "cmdline").read_bytes().startswith(name.encode()):
                found.append(int(path.name))
    return found


def _main() -> int:
    try:
        device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
        kind = choose(SandboxKind(sys.argv[1]) if len(sys.argv) > 1 else None, device)
        records = witness(kind, device)
    except (UsageError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for record in records:
        state = "holds" if record.holds else "FAILS" if record.available else "absent"
        print(f"{kind.value:10}  {record.layer:19}  {state:6}  {record.tried}: {record.detail}")
    return int(any(record.available and not record.holds for record in records))


if __name__ == "__main__":
    sys.exit(_main())
