"""Process trees as /proc shows them. Every read may race with an exit: what has gone counts as nothing."""

# Read every 25 ms for every process, where pathlib would double the time:
# ruff: noqa: PTH115, PTH116, PTH123, PTH208

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass

_STOP_SECONDS = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")
# Stopped, traced, or gone and not yet collected.
_STANDING = {b"T", b"t", b"Z", b"X"}
# A process is stopped by its first thread, and while that sits in a call of the kernel's the others go on; then each
# takes some 60 us to stop. One that waits for a child which is stopped itself sits there until both are woken.
_CALL_SECONDS = 0.2
# Most processes of a machine are none of a tree's: threads of the kernel's, and other workers'. Reading all took 7 ms a
# look on one of 16 cores; a turn of the judge's has three looks, and each worker's keeper looks every 25 ms. So who did
# not descend is read once. A pid may pass on: the inode of its directory is another one then (in four of four that came
# back after 32451 forks, Linux 6.18), and those are looked at four times a second, which takes 1 ms where reading all
# anew took 0.2 s of a verdict's 2. That is done at times all the same: a process may be read between two lives of its
# parent's pid.
_VERIFY_SECONDS, _LEARN_SECONDS = 0.25, 2.0


@dataclass(frozen=True)
class Usage:
    """What a set of processes holds at one moment: tasks (threads), and bytes of private and of shared memory."""

    tasks: int
    private_bytes: int
    shared_bytes: int


@dataclass
class _Strangers:
    """Who did not descend from a process: the inode of each one's directory, by its name in /proc."""

    inodes: dict[str, int]
    learnt: float
    verified: float


_strangers: dict[int, _Strangers] = {}
"""By that process."""


def descendants(root: int, without: Container[int] = ()) -> list[int]:
    """Pids of all children of `root`, their children and so on, parents before children; `without` some, and theirs."""
    now = time.monotonic()
    for other, known in list(_strangers.items()):
        if now - known.learnt > _LEARN_SECONDS:
            _strangers.pop(other, None)
    strangers = _strangers.setdefault(root, _Strangers({}, now, now))
    if now - strangers.verified > _VERIFY_SECONDS:
        strangers.inodes, strangers.verified = _still_there(strangers.inodes), now
    new = [name for name in set(os.listdir("/proc")).difference(strangers.inodes) if name.isdigit()]
    # Before they are read: one that has passed on meanwhile is a stranger by an inode that is gone.
    inodes = _inodes(new)
    parents = _parents(new)
    found = _below(root, parents)
    for pid in _apart({root, *found}, parents, strangers.inodes):
        if str(pid) in inodes:
            strangers.inodes[str(pid)] = inodes[str(pid)]
    return _below(root, parents, without) if without else found


def _below(root: int, parents: dict[int, int], without: Container[int] = ()) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = [pid for pid in children.get(waiting.pop(), []) if pid not in without]
        found += below
        waiting += below
    return found


def stop(root: int) -> tuple[list[int], set[bytes]]:
    """Stop all descendants of `root` until no new one is found; their pids, and the states of threads that do not stand
    yet, as a rule of none. SIGCONT to each lets them go on.

    Waits until every thread of theirs stands, for one that sits in a call of the kernel's a fifth of a second. Where
    each process starts the next and ends, there is always a new one; the search is given up after a second.
    """
    stopped: list[int] = []
    deadline = time.monotonic() + _STOP_SECONDS
    while (new := [pid for pid in descendants(root) if pid not in stopped]) and time.monotonic() < deadline:
        send(new, signal.SIGSTOP)
        stopped += new
    end_of_calls = min(deadline, time.monotonic() + _CALL_SECONDS)
    while moving := _states(stopped) - _STANDING:
        if time.monotonic() > (deadline if b"R" in moving else end_of_calls):
            break
        time.sleep(0.0005)
    return stopped, moving


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal those that are there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def keep_to(cores: Collection[int], pids: Iterable[int]) -> None:
    """Have the first thread of each run on these cores alone; others, but those that it starts, run where they did."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(pid, cores)


def threads(pid: int) -> list[int]:
    """Of that process; none of one that is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """What each of `pids` has used of the CPU so far, to the nanosecond, and its children that it has buried, in ticks;
    without those that have gone."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            # The clock of another process: its pid, inverted, above three bits that say "all threads, as scheduled".
            own = time.clock_gettime((~pid << 3) | 2)
            found[pid] = own + sum(map(int, _stat(f"/proc/{pid}/stat", 15)[13:15])) / _TICKS
    return found


def usage(pids: Iterable[int]) -> Usage:
    """Sum over `pids`. Pages shared by a fork count once per process: an upper bound that costs microseconds.

    Pages of mapped files are left out: libraries belong to the page cache and not to the process.
    """
    tasks = private = shared = 0
    for pid in pids:
        fields = _fields(f"/proc/{pid}/status")
        tasks += fields.get("Threads", 0)
        private += fields.get("RssAnon", 0) << 10
        shared += fields.get("RssShmem", 0) << 10
    return Usage(tasks, private, shared)


def proportional_usage(pids: Iterable[int]) -> Usage:
    """As `usage`, each shared page counted once. Walks page tables: milliseconds per gigabyte.

    A process whose map may not be read counts with its resident size.
    """
    tasks = private = shared = 0
    for pid in pids:
        used = usage([pid])
        fields = _fields(f"/proc/{pid}/smaps_rollup")
        tasks += used.tasks
        private += fields["Pss_Anon"] << 10 if "Pss_Anon" in fields else used.private_bytes
        shared += fields["Pss_Shmem"] << 10 if "Pss_Shmem" in fields else used.shared_bytes
    return Usage(tasks, private, shared)


def memfd_bytes(pids: Iterable[int], most: int) -> int | None:
    """Bytes in the memory files that `pids` hold open, mapped or not; one that several hold counts once.

    None where they hold more than `most` descriptors open.
    """
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        links = _descriptors(pid)
        most -= len(links)
        if most < 0:
            return None
        for link in links:
            # One that is closed meanwhile hides no other.
            with contextlib.suppress(OSError):
                if os.readlink(link).startswith("/memfd:"):
                    found = os.stat(link)
                    sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def tasks_of_user(uid: int) -> int:
    """How many tasks on this machine have the real user id `uid`: what RLIMIT_NPROC counts."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    total += _fields(f"/proc/{name}/status").get("Threads", 0)
            except OSError:
                continue
    return total


def _states(pids: Iterable[int]) -> set[bytes]:
    """Those that the threads of `pids` are in."""
    found = set()
    for pid in pids:
        for thread in threads(pid):
            with contextlib.suppress(OSError):
                found.add(_stat(f"/proc/{pid}/task/{thread}/stat")[0])
    return found


def _stat(path: str, count: int = 2) -> list[bytes]:
    """The state, the parent's pid and so on, `count` fields of a file `stat`. Raises OSError for one gone."""
    with open(path, "rb") as file:
        line = file.read()
    # The name in parentheses may hold anything, so read from its end.
    return line[line.rindex(b")") + 2 :].split(None, count)[:count]


def _descriptors(pid: int) -> list[str]:
    directory = f"/proc/{pid}/fd"
    try:
        return [f"{directory}/{name}" for name in os.listdir(directory)]
    except OSError:
        return []


def _still_there(inodes: dict[str, int]) -> dict[str, int]:
    """Those whose directories are the same ones."""
    with os.scandir("/proc") as entries:
        return {entry.name: inode for entry in entries if (inode := inodes.get(entry.name)) == entry.inode()}


def _inodes(names: Iterable[str]) -> dict[str, int]:
    """Of the directories of these processes."""
    inodes = {}
    for name in names:
        with contextlib.suppress(OSError):
            inodes[name] = os.stat(f"/proc/{name}").st_ino
    return inodes


def _parents(names: Iterable[str]) -> dict[int, int]:
    """The parent of each of these processes."""
    parents = {}
    for name in names:
        with contextlib.suppress(OSError):
            parents[int(name)] = int(_stat(f"/proc/{name}/stat")[1])
    return parents


def _apart(tree: set[int], parents: dict[int, int], strangers: Container[str]) -> set[int]:
    """Those whose line of parents ends outside of `tree`, or with one of `strangers`.

    Where it breaks off, one was gone before it was read, and where it comes back to itself, a pid had passed on: whose
    child that is, another look says.
    """

    def is_apart(pid: int) -> bool:
        at: int | None = pid
        passed: set[int] = set()
        while at and str(at) not in strangers and at not in passed:
            passed.add(at)
            at = None if at in tree else parents.get(at)
        return at == 0 or str(at) in strangers

    return {pid for pid in parents if is_apart(pid)}


def _fields(path: str) -> dict[str, int]:
    """The lines `Name: number ...` of one /proc file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, rest = line.partition(b":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name.decode("ascii", "replace")] = int(words[0])
    return found
