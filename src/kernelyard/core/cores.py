"""How many cores there are for this process."""

import os


def usable_cores() -> int:
    """Those that it may run on: under `taskset`, or with a share of a machine, fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
