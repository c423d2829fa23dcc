"""Cores are counted as a process may use them."""

import os
from pathlib import Path

import pytest

from kernelyard.core import cores
from kernelyard.core.cores import cores_from, usable_cores


def test_a_process_that_is_held_to_one_core_counts_one() -> None:
    before = os.sched_getaffinity(0)
    assert usable_cores() == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_as_many_cores_as_are_whole_are_one_hyperthread_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cores, "_siblings", lambda core: {core, core ^ 1})
    assert cores_from(0) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert cores_from(4) == [4, 6, 1, 3, 5, 7, 0, 2]
    for first in range(8):
        assert len({core // 2 for core in cores_from(first)[:4]}) == 4


def test_cores_of_a_machine_that_tells_nothing_of_hyperthreads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(cores, "Path", lambda _: tmp_path / "nothing")
    assert sorted(cores_from(usable[-1])) == usable
    assert cores_from(usable[-1])[0] == usable[-1]
