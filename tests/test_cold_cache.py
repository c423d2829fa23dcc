"""What is evicted before a timed call."""

import threading
from typing import Any

import pytest
import torch

from kernelyard.core import cold_cache
from kernelyard.core.cold_cache import ColdCache


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
