"""The process of a slot is gone when the slot is closed, whenever that is."""

import errno
import multiprocessing
import threading
import time
from multiprocessing.context import SpawnContext, SpawnProcess
from types import SimpleNamespace
from typing import Any

import pytest

from kernelyard.campaign.slot import Slot, Terms
from kernelyard.core.policy import Policy
from kernelyard.judge.compiling import Build
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.deadlines import IN_ALL, Deadlines
from kernelyard.sandbox.launch import SandboxKind
from kernelyard.sandbox.limits import Limits


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


@pytest.mark.parametrize("made", [(SpawnContext, "Pipe"), (SpawnProcess, "start")])
def test_a_machine_that_can_start_nothing_is_a_fault_and_no_error(
    monkeypatch: pytest.MonkeyPatch, made: tuple[type, str]
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(*made, exhausted)
    answer = Slot("cpu", None).judge(None, None, Build())  # type: ignore[arg-type]
    assert answer.verdict is None and "cannot be started" in answer.fault and "unavailable" in answer.fault


@pytest.mark.parametrize("phase", ["load", "check", "time"])
def test_a_judge_may_be_silent_for_as_long_as_a_phase_may_take(phase: str) -> None:
    """A solution that stalls has its verdict: cut short, it would be the machine's fault and tried three times."""
    deadlines = Deadlines(**{phase: 7200.0})
    terms = Terms("fp32", SandboxKind.NATIVE, Limits(), deadlines, Plan(seconds=10), Policy.TRAINING)
    assert terms.silence > IN_ALL * 7200


def test_the_end_of_one_process_is_not_told_with_the_phase_of_another() -> None:
    class Ending:
        def __init__(self, *said: str) -> None:
            self.said = list(said)

        def send(self, _: object) -> None: ...

        def close(self) -> None: ...

        def poll(self, _: float) -> bool:
            return True

        def recv(self) -> str:
            if not self.said:
                raise EOFError
            return self.said.pop(0)

    slot = Slot("cpu", SimpleNamespace(silence=1.0))  # type: ignore[arg-type]
    faults = []
    for pipe in (Ending("timing"), Ending()):
        slot._process = SimpleNamespace(exitcode=-9, join=lambda *_: None, kill=lambda: None)
        slot._pipe = pipe  # type: ignore[assignment]
        faults.append(slot.judge(None, None, Build()).fault)  # type: ignore[arg-type]
    assert faults[0].endswith("while timing") and faults[1].endswith("while starting")
