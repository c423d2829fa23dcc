"""The walls of the native sandbox: what a process does to itself between fork and exec.

Runs in the child, standard library only. Layers that this kernel lacks are returned by name with the reason, so that
the judge can say what is missing; a layer that is there and fails to apply raises.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelyard.sandbox import landlock

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_SECUREBITS = 1, 22, 24, 28
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 38, 47, 2
_SECCOMP_MODE_FILTER = 2
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES = 64

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Walls:
    """What the native sandbox puts around its command; JSON-serialisable, for it travels on a command line.

    `uid`: identity to take on, or None to keep the judge's. `of_its_own`: it is the first of many, and the command has
    the one that its keeper's pid is away. `groups`: supplementary groups, for devices that only a group may open.
    `read_anything`: keep CAP_DAC_READ_SEARCH, for an interpreter that `uid` cannot reach; Landlock still bounds what
    can be opened. `grants`: Landlock's allow-list, or None without Landlock. `seccomp_fd`: a descriptor with the
    filter's bytes, or None.
    """

    uid: int | None
    of_its_own: bool
    groups: Sequence[int]
    read_anything: bool
    grants: Sequence[tuple[str, int]] | None
    seccomp_fd: int | None


def apply_rlimits(bounds: Mapping[str, int]) -> None:
    """Set each RLIMIT_* named in `bounds`, soft and hard, never above the hard limit already in force."""
    for name, bound in bounds.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(kind, (bound, bound))


def apply(walls: Walls, private: str | None, keeper: int) -> None:
    """Confine the calling process for good, and give it `private`. Raises OSError where a layer that was asked for
    cannot be applied."""
    rules = None if walls.grants is None else landlock.ruleset(walls.grants)
    if walls.uid is not None:
        uid = walls.uid + keeper if walls.of_its_own else walls.uid
        if private is not None:
            os.chown(private, uid, uid)
        # Without this bit the kernel drops capabilities with uid 0, and access(2) ignores those that are left.
        _prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP)
        os.setgroups(walls.groups)
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _drop_capabilities(keep=_CAP_DAC_READ_SEARCH if walls.read_anything else None)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if rules is not None:
        landlock.restrict(rules)
    if walls.seccomp_fd is not None:
        _install_filter(os.pread(walls.seccomp_fd, 1 << 16, 0))


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL when `parent`, which must be the caller's parent, ends. Call it after a change of identity,
    which clears the request."""
    _prctl(_PR_SET_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(137)


def _prctl(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if _libc.prctl(option, *padded) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl {option}: {os.strerror(error)}")


def _drop_capabilities(keep: int | None) -> None:
    if os.geteuid() != 0 and keep is None and not _has_capabilities():
        return
    for capability in range(_CAPABILITIES):
        if capability != keep and _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) != 0:
            break  # EINVAL: past the last capability of this kernel
    kept = 0 if keep is None else 1 << keep
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(kept, kept, kept, 0, 0, 0)  # effective, permitted, inheritable; low word then high
    if _libc.capset(header, sets) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"capset: {os.strerror(error)}")
    if keep is not None:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, keep)


def _has_capabilities() -> bool:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    return _libc.capget(header, sets) == 0 and any(sets)


def _install_filter(program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    filter_ = Program(len(program) // 8, program)
    pointer = ctypes.cast(ctypes.pointer(filter_), ctypes.c_void_p).value or 0
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, pointer)
