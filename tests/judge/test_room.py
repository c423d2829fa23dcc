"""What a device has room for, and how long it clears what was given back."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelyard.judge import room, turns
from kernelyard.judge.room import counts_of, has_room, make_room
from kernelyard.judge.turns import run_sets
from kernelyard.sandbox import clearing
from kernelyard.sandbox.returned import Ran

sys.path.insert(0, str(Path(__file__).parent))
from honest import CASES
from timed_here import CPU, Here


def test_the_outer_clock_asks_for_n_calls_alone_where_a_device_has_no_room_for_twice_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 80 << 30))
    cuda = torch.device("cuda")
    assert counts_of(8, 8 << 20, cuda) == (4, 8)
    assert counts_of(1, 4 << 30, cuda) == (1, 2)
    assert counts_of(1, 6 << 30, cuda) == (1,)
    assert counts_of(1, 12 << 30, CPU) == (1, 2)


def test_where_a_device_has_the_room_nobody_gives_memory_back_between_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, given_back, memory = torch.device("cuda", 0), [], [8 << 30, 80 << 30]
    held = {"reserved_bytes": {"all": {"current": 20 << 30}}, "allocated_bytes": {"all": {"current": 6 << 30}}}
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: held)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: tuple(memory))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given_back.append(memory[0]))
    for free, roomy in ((60, False), (60, True), (10, True)):
        memory[0] = free << 30
        make_room(cuda, roomy=roomy)
    assert given_back == [60 << 30, 10 << 30], "where too little is free it is given back all the same"

    asked: list[bool] = []
    monkeypatch.setattr(turns, "make_room", lambda device, *, roomy, crossing: asked.append(roomy))
    worker: Any = Here(CASES["softmax"][0])
    for worker.lender.roomy in (False, True):
        run_sets(worker, [[torch.randn(4, 33)]], (torch.empty(4, 33),), [0])
    assert asked == [False, True]


def test_a_worker_that_answered_as_large_a_request_needs_no_more_than_what_crosses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before its first, and before a larger one, all is given back that the judge's allocator keeps."""
    cuda, given_back, free = torch.device("cuda", 0), [], [16 << 30]
    monkeypatch.setattr(room, "_idle_bytes", lambda _: 9 << 30)
    monkeypatch.setattr(room, "empty_cache", lambda _: given_back.append(free[0]))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free[0], 80 << 30))
    for size, left in ((12, 16), (11, 16), (11, 15), (0, 5), (None, 16)):
        free[0] = left << 30
        make_room(cuda, crossing=None if size is None else size << 30)
    assert given_back == [16 << 30, 15 << 30, 16 << 30], "5 GB of 80 are a little"

    asked: list[int | None] = []
    monkeypatch.setattr(turns, "make_room", lambda _, *, roomy, crossing: asked.append(crossing))
    worker: Any = Here(CASES["softmax"][0])
    x, y = torch.randn(4, 33), torch.empty(4, 33)
    for sets in ([[x]], [[x]], [[x], [x]], [[x], [x]], [[x]]):
        run_sets(worker, sets, (y,), [0])
    one = x.nbytes + y.nbytes
    assert asked == [None, one, None, 2 * one, one]
    worker.lender.roomy = True
    run_sets(worker, [[x]], (y,), [0])
    assert asked[5:] == [0], "what crosses is mapped already"


def test_what_was_given_back_is_cleared_before_the_clock_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the allocator and of what crossed, and where a device has the room as well: 1/4 was 1.05x of itself."""
    device, reserved, slept = torch.device("cuda", 7), [9 << 30, 1 << 30], list[float]()
    monkeypatch.setattr(room, "_idle_bytes", lambda _: 9 << 30)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: reserved.pop(0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10 << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(turns.time, "sleep", slept.append)
    monkeypatch.setattr(clearing, "time", SimpleNamespace(monotonic=lambda: 0.0))

    class Waiting(Here):
        def run(self, sets: list[list[Any]], **asked: Any) -> Ran:
            asked["before"]()
            return Ran(((1.0, 1.0),), 1e-3, ())

    worker: Any = Waiting(CASES["softmax"][0])
    worker.device, worker.lender.roomy = device, True
    monkeypatch.setattr(turns, "make_room", lambda _, *, roomy, crossing: None)
    run_sets(worker, [[]], (), [0])
    assert slept == []
    make_room(device, roomy=True)
    clearing.gave_back(8 << 30, device)
    assert not clearing.seconds_until_clear(torch.device("cuda", 6))
    run_sets(worker, [[]], (), [0])
    assert slept == [pytest.approx((16 << 30) / clearing.BYTES_A_SECOND)]


def test_there_is_room_by_what_is_free_when_the_solution_has_been_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, memory = torch.device("cuda"), [80 << 30, 80 << 30]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: tuple(memory))
    assert has_room(6 << 30, 6 << 30, cuda, whole=False) and not has_room(8 << 30, 8 << 30, cuda, whole=False)
    assert has_room(26 << 30, 0, cuda, whole=False) and not has_room(0, 11 << 30, cuda, whole=False)
    assert has_room(3 << 30, 3 << 30, cuda, whole=True) and not has_room(4 << 30, 4 << 30, cuda, whole=True)
    memory[0] = 40 << 30  # a solution took the other half
    assert counts_of(1, 4 << 30, cuda) == (1, 2) and not has_room(4 << 30, 4 << 30, cuda, whole=False)
    assert has_room(4 << 30, 4 << 30, cuda, whole=False, kept=8 << 30), "what stays mapped is there already"
    assert not has_room(1, 1, CPU, whole=False)
