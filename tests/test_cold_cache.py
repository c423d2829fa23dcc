"""What is evicted before a timed call."""

import ctypes
import runpy
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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


PINS = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "exploits/pins_its_weights_in_l2.py")))
"""The sample, which names what the driver takes."""


@pytest.mark.gpu
def test_what_a_stream_pins_is_warm_behind_reads_and_cold_behind_a_flush(device: torch.device) -> None:
    """The sample that pins its weights gains nothing by it; here it would without the reset."""
    cold, x, driver = ColdCache(device), torch.ones(5 << 20, device=device), ctypes.CDLL("libcuda.so.1")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def pin(size: int) -> None:
        window = PINS.Window(x.data_ptr(), size, 1.0, PINS.PERSISTING, PINS.STREAMING)
        assert driver.cuCtxSetLimit(PINS.LIMIT_PERSISTING, ctypes.c_size_t(size)) == 0
        assert driver.cuStreamSetAttribute(stream, PINS.ATTRIBUTE_WINDOW, ctypes.byref(window)) == 0

    def took(evict: Callable[[], None]) -> float:
        times = []
        for _ in range(30):
            x.sum()
            evict()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            x.sum()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return sorted(times)[len(times) // 2]

    def reads() -> None:
        for _ in range(cold.passes):
            cold.evict()

    ordinary = took(reads)
    pin(x.nbytes)
    try:
        pinned, flushed = took(reads), took(cold.flush)
    finally:
        pin(0)
        cold.flush()
    assert pinned < 0.9 * ordinary, (ordinary, pinned, flushed)
    assert flushed > 0.95 * ordinary, (ordinary, pinned, flushed)


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
