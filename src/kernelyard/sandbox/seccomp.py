"""The system-call filter, as the bytes of a classic BPF program (no libseccomp).

A deny-list: the CUDA driver, compilers and thread pools need most of the kernel's calls, among them ioctl, mmap,
eventfd, memfd_create and Unix sockets, so an allow-list would follow every driver release. What it takes away is what
reaches into other processes, outlives them, builds new namespaces, or talks to a network.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct

# Numbers differ below 424; later calls have one number on every architecture.
_COMMON = {
    "io_uring_setup": 425,  # its requests are carried out by the kernel, past this filter
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,  # takes a descriptor out of another process
    "process_madvise": 440,
    "mount_setattr": 442,
    "memfd_secret": 447,  # memory that no one else can count
}
_DENIED = {
    "x86_64": _COMMON
    | {
        # What SysV and POSIX queues hold outlives its process, and no limit on a process counts it.
        "shmget": 29,
        "semget": 64,
        "msgget": 68,
        "mq_open": 240,
        "ptrace": 101,
        "pivot_root": 155,
        "mount": 165,
        "umount2": 166,
        "init_module": 175,
        "delete_module": 176,
        "kexec_load": 246,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "unshare": 272,
        "perf_event_open": 298,
        "name_to_handle_at": 303,
        "open_by_handle_at": 304,  # opens by inode, past the path rules of Landlock
        "setns": 308,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "kcmp": 312,
        "finit_module": 313,
        "kexec_file_load": 320,
        "bpf": 321,
        "userfaultfd": 323,
    },
    "aarch64": _COMMON
    | {
        "umount2": 39,
        "mount": 40,
        "pivot_root": 41,
        "unshare": 97,
        "kexec_load": 104,
        "init_module": 105,
        "delete_module": 106,
        "ptrace": 117,
        "mq_open": 180,
        "msgget": 186,
        "semget": 190,
        "shmget": 194,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "perf_event_open": 241,
        "name_to_handle_at": 264,
        "open_by_handle_at": 265,
        "setns": 268,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "kcmp": 272,
        "finit_module": 273,
        "bpf": 280,
        "userfaultfd": 282,
        "kexec_file_load": 294,
    },
}
# (audit architecture, socket, clone, prlimit64)
_NUMBERS = {"x86_64": (0xC000003E, 41, 56, 302), "aarch64": (0xC00000B7, 198, 220, 261)}
_CLONE3 = 435
# Every CLONE_NEW* flag that clone() takes: mount, cgroup, uts, ipc, user, pid and net namespaces.
_CLONE_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_X32_BIT = 0x40000000

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_FIRST_ARGUMENT = 0, 4, 16


def supported() -> bool:
    """Whether the call numbers of this machine's architecture are known here."""
    return platform.machine() in _NUMBERS


def program() -> bytes:
    """The filter as an array of `struct sock_filter`, for bubblewrap's `--seccomp` or for prctl.

    Raises KeyError on an architecture for which `supported` is false.
    """
    machine = platform.machine()
    architecture, socket_call, clone_call, prlimit_call = _NUMBERS[machine]
    steps = [
        _step(_LOAD, _OFFSET_ARCHITECTURE),
        _step(_JUMP_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL_PROCESS),
        _step(_LOAD, _OFFSET_NUMBER),
    ]
    if machine == "x86_64":  # the x32 ABI reaches the same calls under other numbers
        steps += [_step(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _deny(errno.EPERM)]
    for number in sorted(_DENIED[machine].values()):
        steps += [_step(_JUMP_EQUAL, number, 0, 1), _deny(errno.EPERM)]
    # clone3 hides its flags behind a pointer, which a filter cannot follow; at ENOSYS libc falls back to clone.
    steps += [_step(_JUMP_EQUAL, _CLONE3, 0, 1), _deny(errno.ENOSYS)]
    steps += _when_first_argument(clone_call, _step(_JUMP_ANY_BIT, _CLONE_NAMESPACES, 0, 1), errno.EPERM)
    steps += _when_first_argument(socket_call, _step(_JUMP_EQUAL, socket.AF_UNIX, 1, 0), errno.EACCES)
    # prlimit of another process needs only its uid, which a native sandbox may share with the judge.
    steps += _when_first_argument(prlimit_call, _step(_JUMP_EQUAL, 0, 1, 0), errno.EPERM)
    steps.append(_step(_RETURN, _ALLOW))
    return b"".join(steps)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _deny(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)


def _when_first_argument(call: int, test: bytes, error: int) -> list[bytes]:
    """For `call`: deny with `error` where `test` falls through, allow where it jumps over one step."""
    return [
        _step(_JUMP_EQUAL, call, 0, 4),
        _step(_LOAD, _OFFSET_FIRST_ARGUMENT),
        test,
        _deny(error),
        _step(_RETURN, _ALLOW),
    ]
