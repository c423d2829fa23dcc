"""The process of a slot is gone when the slot is closed, whenever that is."""

import multiprocessing
import threading
import time
from multiprocessing.context import SpawnProcess
from typing import Any

import pytest

from kernelyard.campaign.slot import Slot
from kernelyard.judge.compiling import Build


def _left() -> list[Any]:
    return [process for process in multiprocessing.active_children() if process.name == "slot"]


def test_nothing_is_started_behind_a_close() -> None:
    slot = Slot("cpu", None)  # type: ignore[arg-type]
    slot.close()
    answer = slot.judge(None, None, Build())  # type: ignore[arg-type]
    assert answer.verdict is None and answer.fault == "the slot is closed"
    assert not _left()


def test_a_close_waits_for_a_start_and_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the process would wait for work for ever, and the program for the process."""
    starting = threading.Event()
    start = SpawnProcess.start

    def slowly(process: SpawnProcess) -> None:
        starting.set()
        time.sleep(0.3)
        start(process)

    monkeypatch.setattr(SpawnProcess, "start", slowly)
    slot = Slot("cpu", None)  # type: ignore[arg-type]
    judge = threading.Thread(target=slot._start, daemon=True)
    judge.start()
    assert starting.wait(10)
    slot.close()
    judge.join(10)
    assert not judge.is_alive() and not _left()
