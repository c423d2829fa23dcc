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
        "connect": 42,  # Landlock looks at no socket with a path: a user's session bus starts what it is asked to
        "ptrace": 101,
        "pivot_root": 155,
        "mount": 165,
        "umount2": 166,
        "init_module": 175,
        "delete_module": 176,
        "timer_create": 222,  # has a signal sent to who stands still
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
        "timer_create": 107,
        "ptrace": 117,
        "connect": 203,
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
# What these set holds on while their caller stands still: where and how another process of its user runs, where its
# memory lies, its limits. In the native sandbox a solution that kept its baseline's threads to one core was `faster`
# by 1.25x, confirmed. A filter knows no pids, so they are left to who means itself by 0. glibc's pthread_setaffinity_np
# and pthread_setschedparam name even the calling thread by its number, and fail with EPERM; so does a program that is
# started with OMP_PROC_BIND or GOMP_CPU_AFFINITY, which no worker is.
_OF_A_PROCESS = {
    "x86_64": {
        "setpriority": 141,
        "sched_setparam": 142,
        "sched_setscheduler": 144,
        "sched_setaffinity": 203,
        "ioprio_set": 251,
        "migrate_pages": 256,
        "move_pages": 279,
        "prlimit64": 302,
        "sched_setattr": 314,
    },
    "aarch64": {
        "ioprio_set": 30,
        "sched_setparam": 118,
        "sched_setscheduler": 119,
        "sched_setaffinity": 122,
        "setpriority": 140,
        "migrate_pages": 238,
        "move_pages": 239,
        "prlimit64": 261,
        "sched_setattr": 274,
    },
}
# What stands before the pid: PRIO_PROCESS and IOPRIO_WHO_PROCESS. The other kinds are a group and a whole user.
_BEFORE_THE_PID = {"setpriority": (0,), "ioprio_set": (1,)}
# (audit architecture, socket, socketpair, clone, prctl, fcntl)
_NUMBERS = {"x86_64": (0xC000003E, 41, 53, 56, 157, 72), "aarch64": (0xC00000B7, 198, 199, 220, 167, 25)}
_CLONE3 = 435
# Every CLONE_NEW* flag that clone() takes: mount, cgroup, uts, ipc, user, pid and net namespaces.
_CLONE_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
# SOCK_DGRAM and SOCK_RAW, which is the same among Unix sockets, have this bit, SOCK_STREAM and SOCK_SEQPACKET have not.
# A datagram goes to an address of its own, connected or not.
_DATAGRAM = 2
_X32_BIT = 0x40000000
# Gives a process, also another one, a mark: what has another mark runs on no hyperthread beside it.
_PR_SCHED_CORE = 62

# Has a descriptor's SIGIO be SIGCONT, which wakes a stopped process, as a timer of the kernel's does (timer_create). Of
# 160 children each woke so for less than is looked for, and a baseline on two cores took 1.24x as long, unseen. torch,
# compilers, NVIDIA's driver and compute-sanitizer do without either (driver 580.159.04).
_F_SETSIG = 10

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_FIRST_ARGUMENT = 0, 4, 16


def supported() -> bool:
    """Whether the call numbers of this machine's architecture are known here."""
    return platform.machine() in _NUMBERS


def program(*, connects: bool = False) -> bytes:
    """The filter as an array of `struct sock_filter`, for bubblewrap's `--seccomp` or for prctl.

    `connects`: for who may connect to a socket; where namespaces hide all but his own there is nothing else to reach.
    Raises KeyError on an architecture for which `supported` is false.
    """
    machine = platform.machine()
    architecture, socket_call, pair_call, clone_call, prctl_call, fcntl_call = _NUMBERS[machine]
    steps = [
        _step(_LOAD, _OFFSET_ARCHITECTURE),
        _step(_JUMP_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL_PROCESS),
        _step(_LOAD, _OFFSET_NUMBER),
    ]
    if machine == "x86_64":  # the x32 ABI reaches the same calls under other numbers
        steps += [_step(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _deny(errno.EPERM)]
    for number in sorted(number for name, number in _DENIED[machine].items() if not (connects and name == "connect")):
        steps += [_step(_JUMP_EQUAL, number, 0, 1), _deny(errno.EPERM)]
    # clone3 hides its flags behind a pointer, which a filter cannot follow; at ENOSYS libc falls back to clone.
    steps += [_step(_JUMP_EQUAL, _CLONE3, 0, 1), _deny(errno.ENOSYS)]
    steps += _unless(clone_call, errno.EPERM, _step(_JUMP_ANY_BIT, _CLONE_NAMESPACES, 0, 1))
    for call in (socket_call, pair_call):
        steps += _unless(call, errno.EACCES, _equals(socket.AF_UNIX), _step(_JUMP_ANY_BIT, _DATAGRAM, 0, 1))
    steps += _unless(prctl_call, errno.EPERM, _step(_JUMP_EQUAL, _PR_SCHED_CORE, 0, 1))
    any_descriptor, another = _step(_JUMP_AT_LEAST, 0, 1, 0), _step(_JUMP_EQUAL, _F_SETSIG, 0, 1)
    steps += _unless(fcntl_call, errno.EPERM, any_descriptor, another)
    for number, *before in on_others().values():
        steps += _unless(number, errno.EPERM, *map(_equals, before), _equals(0))
    steps.append(_step(_RETURN, _ALLOW))
    return b"".join(steps)


def on_others() -> dict[str, list[int]]:
    """The calls that are denied with any pid but 0: each one's number and what stands before the pid. Empty on an
    architecture for which `supported` is false."""
    calls = _OF_A_PROCESS.get(platform.machine(), {})
    return {name: [number, *_BEFORE_THE_PID.get(name, ())] for name, number in calls.items()}


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _deny(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)


def _equals(value: int) -> bytes:
    """A test for `_unless`."""
    return _step(_JUMP_EQUAL, value, 1, 0)


def _unless(call: int, error: int, *tests: bytes) -> list[bytes]:
    """For `call`: deny with `error` unless each test, one for each of its first arguments, jumps over one step."""
    steps = []
    for place, test in enumerate(tests):
        # The lower half: an int is all that the kernel reads of these.
        steps += [_step(_LOAD, _OFFSET_FIRST_ARGUMENT + 8 * place), test, _deny(error)]
    return [_step(_JUMP_EQUAL, call, 0, len(steps) + 1), *steps, _step(_RETURN, _ALLOW)]
