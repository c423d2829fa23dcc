"""Landlock through its three system calls: which paths a process and all its children may open.

Numbers and layouts are those of linux/landlock.h; the three calls have the same numbers on every architecture.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_REQUEST = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# How many of the file-system rights each ABI knows; ABI 4 brought TCP, ABI 6 the scopes.
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
_RIGHTS_SINCE_ABI_5 = 16
_TCP_BIND_AND_CONNECT = 0b11
_SCOPE_ABSTRACT_SOCKET_AND_SIGNAL = 0b11

READ = _EXECUTE | _READ_FILE | _READ_DIR
LIST = _READ_DIR
WRITE = _WRITE_FILE | _TRUNCATE
DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
ALL = (1 << 16) - 1

_libc = ctypes.CDLL(None, use_errno=True)


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """The version of Landlock in the running kernel; 0 where there is none."""
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_REQUEST)
    return max(int(version), 0)


def ruleset(grants: Iterable[tuple[str, int]]) -> int:
    """A descriptor of rules that allow exactly `grants`, pairs of a path and its rights, everything beneath included.

    TCP is denied from ABI 4, signals and abstract sockets to processes outside from ABI 6. A path that does not exist
    is passed over. Raises OSError where the kernel has no Landlock.
    """
    version = abi()
    handled = (1 << _RIGHTS_BY_ABI.get(version, _RIGHTS_SINCE_ABI_5)) - 1
    attributes = _RulesetAttributes(
        handled,
        _TCP_BIND_AND_CONNECT if version >= 4 else 0,
        _SCOPE_ABSTRACT_SOCKET_AND_SIGNAL if version >= 6 else 0,
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0)
    for path, rights in grants:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        if not os.path.isdir(path):  # noqa: PTH112 - pathlib would double the start-up time
            rights &= _OF_FILES
        rule = _PathBeneath(rights & handled, place)
        _call(_ADD_RULE, rules, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
        os.close(place)
    return rules


def restrict(rules: int) -> None:
    """Put the calling thread and its future children under `rules`. Needs no_new_privs; cannot be undone."""
    _call(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"landlock: {os.strerror(error)}")
    return result
