"""Walls made of namespaces, by the `bwrap` program: an own file system, own pids, no network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelyard.sandbox.limits import Limits

PRIVATE = "/tmp"
NOBODY = 65534
_NAMESPACES = ("user", "pid", "net", "ipc", "uts", "cgroup-try")


def program() -> str | None:
    """Path of bwrap: $KERNELYARD_BWRAP if set, else the one on PATH; None where there is none."""
    return shutil.which(os.environ.get("KERNELYARD_BWRAP") or "bwrap")


def command_line(
    bwrap: str,
    command: Sequence[str],
    *,
    readable: Iterable[Path],
    nodes: Iterable[Path],
    limits: Limits,
    seccomp_fd: int | None,
) -> list[str]:
    """The arguments that run `command` in a world of `readable` (read-only), `nodes` of /dev and two small tmpfs."""
    line = [bwrap, "--die-with-parent"]
    line += [f"--unshare-{name}" for name in _NAMESPACES]
    line += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"]
    # The order counts: a later mount covers an earlier one, so what is shared comes after the fresh tmpfs.
    line += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", "/sys", "/sys"]
    for directory in (PRIVATE, "/dev/shm"):
        line += ["--size", str(limits.file_bytes), "--tmpfs", directory]
    for node in nodes:
        line += ["--dev-bind-try", str(node), str(node)]
    line += _shared(readable)
    line += [word for path in kernel_settings() for word in ("--ro-bind", path, path)]
    # Both are tmpfs of bwrap's own without a size: left writable they would hold as much as the machine does.
    line += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", PRIVATE]
    if seccomp_fd is not None:
        line += ["--seccomp", str(seccomp_fd)]
    return [*line, "--", *command]


def kernel_settings() -> list[str]:
    """What of /proc is the kernel's and can be written, to be covered read-only.

    Started by root, the process is root's to the kernel under any uid of the namespace: it could write
    /proc/sys/kernel/core_pattern, which names a program that the machine's real root runs. The processes' own files
    stay writable: CUDA names its threads through /proc/self/task/TID/comm, and cuInit fails with 304 where all of
    /proc is read-only (H100, driver 580).
    """
    entries = (path for path in Path("/proc").iterdir() if not path.name.isdigit() and not path.is_symlink())
    return sorted(str(path) for path in entries if path.is_dir() or path.stat().st_mode & 0o222)


def _shared(paths: Iterable[Path]) -> list[str]:
    """Read-only binds of `paths`; one beneath another that is already shared needs none."""
    line: list[str] = []
    done: list[Path] = []
    for path in sorted(paths, key=lambda path: len(path.parts)):
        if any(path.is_relative_to(above) for above in done):
            continue
        done.append(path)
        if path.is_symlink() and len(path.parts) == 2:  # /lib -> usr/lib stays the link it is
            line += ["--symlink", str(path.readlink()), str(path)]
        else:
            line += ["--ro-bind", str(path), str(path)]
    return line
