"""What is evicted before a timed call."""

import threading
import time
from typing import Any

import pytest
import torch

from kernelyard.core import cold_cache
from kernelyard.core.cold_cache import ColdCache
from kernelyard.judge.timing import interleaved


@pytest.mark.gpu
def test_a_flush_in_a_new_thread_lets_go_of_persisting_lines(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    """A thread that has launched nothing has no context: the driver refuses, and nobody looked."""
    cold, reset = ColdCache(device), cold_cache._reset_persisting
    said: list[Any] = []
    monkeypatch.setattr(cold_cache, "_reset_persisting", lambda: said.append(reset()) or said[-1])
    cold.flush()
    (thread := threading.Thread(target=cold.flush)).start()
    thread.join()
    assert [int(one) for one in said] == [0, 201, 0]


def test_a_driver_that_refuses_is_not_overheard(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.device] = []
    monkeypatch.setattr(cold_cache, "_reset_persisting", lambda: 999)
    monkeypatch.setattr(torch.cuda, "synchronize", asked.append)
    with pytest.raises(RuntimeError, match="persisting lines, which no timing can do without: 999"):
        cold_cache._let_go(torch.device("cuda:1"))
    assert asked == [torch.device("cuda:1")], "of a broken device torch says so itself"
    monkeypatch.setattr(cold_cache, "_reset_persisting", lambda: 801)
    cold_cache._let_go(torch.device("cuda:1"))


def test_a_call_that_keeps_its_host_stands_behind_a_longer_flush() -> None:
    cold = ColdCache(torch.device("meta"))
    passes = [cold.outlasting(seconds) for seconds in (0.0, 20e-6, 270e-6, 300e-6, 1.0)]
    assert passes == [3, 3, 3, 4, 24], "twice the host's time, in passes of 0.18 ms"
    assert ColdCache(torch.device("cpu")).outlasting(1.0) == 1, "a CPU enqueues nothing"


@pytest.mark.gpu
def test_a_slow_host_is_no_part_of_a_devices_time(device: torch.device) -> None:
    x = torch.ones(1 << 20, device=device)

    def slow() -> None:
        end = time.perf_counter() + 1e-3
        while time.perf_counter() < end:
            pass
        x.neg()

    times = interleaved({"quick": x.neg, "slow": slow}, device, seconds=0.05)
    assert times["slow"].p50_ms < 2 * times["quick"].p50_ms
