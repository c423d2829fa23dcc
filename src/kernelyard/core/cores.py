"""The cores that there are for this process."""

import os
import secrets
from pathlib import Path


def usable_cores() -> int:
    """Those that it may run on: under `taskset`, or with a share of a machine, fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def any_core() -> int:
    """One of them, by lot. Linux only."""
    return secrets.choice(sorted(os.sched_getaffinity(0)))


def cores_from(first: int) -> list[int]:
    """All of them from `first` on, so that as many as there are whole cores are one hyperthread of each. Linux only."""
    usable = os.sched_getaffinity(0)
    in_order = sorted(usable, key=lambda core: (sum(other < core for other in _siblings(core) & usable), core))
    start = in_order.index(first)
    return in_order[start:] + in_order[:start]


def _siblings(core: int) -> set[int]:
    """The hyperthreads of its whole core, itself among them."""
    listed = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        ranges = [part.partition("-") for part in listed.read_text(encoding="ascii").strip().split(",")]
        return {core for low, _, high in ranges for core in range(int(low), int(high or low) + 1)}
    except (OSError, ValueError):
        return {core}
