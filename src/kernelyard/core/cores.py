"""The cores that there are for this process."""

import os
import secrets


def usable_cores() -> int:
    """Those that it may run on: under `taskset`, or with a share of a machine, fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def any_core() -> int:
    """One of them, by lot. Linux only."""
    return secrets.choice(sorted(os.sched_getaffinity(0)))
