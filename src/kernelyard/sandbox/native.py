"""Walls that a process can put up around itself, for machines without bubblewrap or without user namespaces.

Weaker than namespaces: the judge's processes stay visible in /proc and the size of the private directory is watched
instead of bounded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelyard.sandbox import landlock
from kernelyard.sandbox.confine import Walls
from kernelyard.sandbox.surroundings import IMPORT_ROOT

NOBODY = 65534
# Users that nobody has given away, systemd's containers neither. A command has the one that its keeper's pid is away
# from the first, which no other has as long as the keeper lives: of one user's processes each may signal and reschedule
# the others, and write to their files in /proc.
_FIRST_USER, _USERS = 0x70000000, 1 << 22
_PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True)
class Native:
    """The walls that this machine allows, and by name those that it does not, each with the reason."""

    walls: Walls
    missing: dict[str, str]


def plan(private: Path, readable: Sequence[Path], nodes: Sequence[Path], seccomp_fd: int | None) -> Native:
    """Choose the walls for a command that may write only in `private`."""
    missing: dict[str, str] = {}
    grants = None
    if landlock.abi():
        grants = _grants(private, readable, nodes)
    else:
        missing["landlock"] = "this kernel has no Landlock"
    of_its_own = _are_mapped(_FIRST_USER, _USERS)
    uid: int | None = _FIRST_USER if of_its_own else NOBODY
    read_anything = False
    if os.geteuid() != 0:
        uid, missing["uid"] = None, "only root can give the process another user"
    elif unreachable := next((path for path in (*readable, private.parent) if not _anyone_reads(path)), None):
        # Reading past permissions is safe only where Landlock bounds what can be opened at all.
        read_anything = grants is not None
        if not read_anything:
            uid, missing["uid"] = None, f"another user cannot read {unreachable}, which the command needs"
    if uid == NOBODY:
        missing["own uid"] = f"this namespace has no user {_FIRST_USER}, so all workers are user {NOBODY}"
    groups = _groups(nodes) if uid is not None else ()
    return Native(Walls(uid, of_its_own and uid is not None, groups, read_anything, grants, seccomp_fd), missing)


def _grants(private: Path, readable: Iterable[Path], nodes: Sequence[Path]) -> list[tuple[str, int]]:
    """Landlock's allow-list.

    With a device /proc also for writing, because CUDA names its threads by writing /proc/self/task/TID/comm and cuInit
    fails with 304 where it cannot (H100, driver 580). What is not its user's own there stays shut by its permissions,
    and Landlock itself denies the memory and the environment of processes outside.
    """
    grants = [(str(path), landlock.READ) for path in (*readable, Path("/sys"))]
    grants.append(("/proc", landlock.READ | landlock.WRITE if nodes else landlock.READ))
    grants += [(path, landlock.DEVICE) for path in _PLAIN_DEVICES]
    grants += [(str(node), landlock.DEVICE | landlock.LIST) for node in nodes]
    grants += [(path, landlock.LIST) for path in ("/dev", str(IMPORT_ROOT))]
    return [*grants, (str(private), landlock.ALL)]


def _are_mapped(first: int, count: int) -> bool:
    """Whether this user namespace has these users and groups; a rootless container has 65536 as a rule."""
    for kind in ("uid", "gid"):
        try:
            lines = Path(f"/proc/self/{kind}_map").read_text().splitlines()
        except FileNotFoundError:  # a kernel without user namespaces
            continue
        spans = [(int(begin), int(length)) for begin, _, length in map(str.split, lines)]
        if not any(begin <= first and first + count <= begin + length for begin, length in spans):
            return False
    return True


def _anyone_reads(path: Path) -> bool:
    """Whether every user can reach `path` and read it, by the permission bits."""
    mode = path.stat().st_mode
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    if mode & needed != needed:
        return False
    return all(above.stat().st_mode & stat.S_IXOTH for above in path.resolve().parents)


def _groups(nodes: Iterable[Path]) -> list[int]:
    """Groups without which a node of the granted device cannot be opened, such as `render` on AMD."""
    shut = (path.stat() for path in nodes if path.exists())
    return sorted({node.st_gid for node in shut if not node.st_mode & stat.S_IWOTH and node.st_gid != 0})
