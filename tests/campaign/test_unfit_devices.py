"""Devices that fail in the middle of a run: what it costs, and whom."""

import errno
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from verdicts import ENVIRONMENT, SETTINGS, judged

from kernelyard.campaign import slot as slots
from kernelyard.campaign.ledger import Ledger
from kernelyard.campaign.pipeline import Pipeline
from kernelyard.campaign.records import Candidate, Key
from kernelyard.campaign.slot import Answer, Slot, Terms
from kernelyard.core import interpreter
from kernelyard.core.policy import Policy
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Status
from kernelyard.judge import compiling
from kernelyard.judge import evaluate as evaluation
from kernelyard.judge.compiling import Build
from kernelyard.judge.plan import Plan
from kernelyard.sandbox import pool
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.health import Ward
from kernelyard.sandbox.launch import SandboxKind
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Post
from kernelyard.suites.suite import Entry, Suite

TERMS = Terms("float32", SandboxKind.NATIVE, Limits(), Deadlines(queue=5.0), Plan(), Policy.TRAINING)
PROBLEM = Source(Path("1_Softmax.py"), "a problem")
SUITE = Suite("made up", (Entry(1, 1, "1_Softmax.py", PROBLEM, lambda: None),))  # type: ignore[arg-type]


def answer(solution: Source, status: Status, **more: Any) -> Answer:
    verdict = judged(Key(1, 1, 0), status, solution.sha256, PROBLEM.sha256).verdict
    return Answer(verdict.model_dump_json(), **more)


def test_one_candidate_does_not_take_every_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first hangs the driver of whatever it runs on: it was tried on the next, again and again."""
    sick = set()

    def judge(slot: Slot, entry: Entry, solution: Source, build: Build) -> Answer:
        if slot.device in sick:
            return Answer(None, unfit="it was set aside before", asked=False)
        if solution.path.name == "0.py":
            sick.add(slot.device)
            return answer(solution, Status.INFRA_ERROR, unfit=f"{slot.device} is set aside")
        time.sleep(0.05)
        return answer(solution, Status.INCORRECT_VALUE)

    monkeypatch.setattr(Slot, "judge", judge)
    found = [Candidate(Key(1, 1, i), Source(Path(f"{i}.py"), f"x {i}")) for i in range(12)]
    with Ledger(tmp_path, create=True) as ledger:
        ledger.begin(SUITE, SETTINGS, ENVIRONMENT)
        pipeline = Pipeline(ledger, SUITE, found, TERMS, [f"xpu:{i}" for i in range(3)], ENVIRONMENT, jobs=1)
        pipeline.run()
        said = {one.sample: one.verdict.status for one in ledger.judged()}
    assert len(sick) == 1 and pipeline.unfit == [f"{min(sick)} is set aside"]
    assert said.pop(0) is Status.INFRA_ERROR and set(said.values()) == {Status.INCORRECT_VALUE} and len(said) == 11


@pytest.mark.parametrize(("message", "attempts"), [("too large for this machine: why", 1), ("a passing fault", 3)])
def test_what_a_machine_is_too_small_for_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, attempts: int
) -> None:
    asked: list[str] = []

    def judge(slot: Slot, entry: Entry, solution: Source, build: Build) -> Answer:
        asked.append(slot.device)
        verdict = judged(Key(1, 1, 0), Status.INFRA_ERROR, solution.sha256, PROBLEM.sha256).verdict
        return Answer(verdict.model_copy(update={"message": message}).model_dump_json())

    monkeypatch.setattr(Slot, "judge", judge)
    found = [Candidate(Key(1, 1, 0), Source(Path("0.py"), "x"))]
    with Ledger(tmp_path, create=True) as ledger:
        ledger.begin(SUITE, SETTINGS, ENVIRONMENT)
        Pipeline(ledger, SUITE, found, TERMS, ["xpu:0"], ENVIRONMENT, jobs=1).run()
        assert [one.verdict.message for one in ledger.judged()] == [message]
    assert len(asked) == attempts


def served(monkeypatch: pytest.MonkeyPatch, ward: Ward, error: Exception) -> Answer:
    """What a slot's process answers for one candidate, in whose judging this is raised."""

    def failing(*_: object, **__: object) -> None:
        raise error

    asked = [(SimpleNamespace(source=PROBLEM, load=lambda: None), Source(Path("0.py"), "x"), Build())]

    def receive() -> object:
        if not asked:
            raise EOFError
        return asked.pop()

    said: list[Answer] = []
    monkeypatch.setattr(evaluation, "evaluate", failing)
    monkeypatch.setattr(Ward, "usual", classmethod(lambda cls: ward))
    monkeypatch.setattr(pool, "Pool", lambda *_, **__: nullcontext())
    monkeypatch.setattr(slots, "end_with_parent", lambda: None)
    monkeypatch.setattr(slots, "replace", lambda problem, **_: problem)
    monkeypatch.setattr(interpreter, "choose_for", lambda _: None)
    monkeypatch.setattr("kernelyard.sandbox.witness.fallen", lambda *_: "")
    slots._serve(SimpleNamespace(recv=receive, send=said.append), "xpu:1", TERMS)  # type: ignore[arg-type]
    return said[-1]


def test_where_the_judge_fails_its_device_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that had fallen off the bus took the run's candidates faster than a healthy one."""
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path))
    looked: list[torch.device] = []

    def examine(device: torch.device, turn: object) -> str:
        looked.append(device)
        return "a small computation failed"

    ward = Ward(tmp_path / "quarantine", examine)
    made = served(monkeypatch, ward, RuntimeError("CUDA error: unspecified launch failure"))
    assert looked == [torch.device("xpu:1")] and "a small computation failed" in made.unfit and made.asked
    assert not served(monkeypatch, ward, RuntimeError()).asked, "set aside by then"


def test_a_judges_process_that_outlives_its_kill_does_not_hold_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a call of the driver SIGKILL waits until that returns; the device's turn is its own as long."""
    monkeypatch.setattr(slots, "_KILL_SECONDS", 0.05)
    process = SimpleNamespace(exitcode=None, kill=lambda: None, join=time.sleep)
    pipe = SimpleNamespace(send=lambda _: None, poll=lambda _: False, close=lambda: None)
    slot = Slot("xpu:0", SimpleNamespace(silence=0.01, deadlines=Deadlines()))  # type: ignore[arg-type]
    slot._process, slot._pipe = process, pipe  # type: ignore[assignment]
    made = slot.judge(SUITE.entries[0], Source(Path("0.py"), "x"), Build())
    assert made.unfit == "xpu:0: the judge's process outlives SIGKILL: stuck in a call of the driver"
    closing = threading.Thread(target=slot.close, daemon=True)
    closing.start()
    closing.join(5)
    assert not closing.is_alive()


def test_a_build_that_cannot_be_started_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(compiling, "compiled", exhausted)
    built = compiling.build(Source(Path("0.py"), "x"), Post(SandboxKind.NATIVE), torch.device("cpu"), Deadlines())
    assert built.end is not None and built.end[0] is Status.INFRA_ERROR
