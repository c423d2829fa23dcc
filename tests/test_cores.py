"""Cores are counted as a process may use them."""

import os

from kernelyard.core.cores import usable_cores


def test_a_process_that_is_held_to_one_core_counts_one() -> None:
    before = os.sched_getaffinity(0)
    assert usable_cores() == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
