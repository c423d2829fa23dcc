"""The baseline's worker gets ready while the solution is checked."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from judged_here import verdict_on

from kernelyard.core.verdict import Phase, Status
from kernelyard.judge import evaluate
from kernelyard.judge.opening import SLOW_SECONDS, Opening
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.pool import Post, Worker
from kernelyard.sandbox.session import Session

CPU = torch.device("cpu")
SECONDS = 60.0
CONSTRUCTED = 2.0
SLOW = f"""
import time
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep({CONSTRUCTED})
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.scale
"""
FAILS = """
class Model:
    def __init__(self):
        raise ValueError("no reference")
"""
PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.softmax(-1)

def get_inputs():
    return [torch.rand(16, 64)]

def get_init_inputs():
    return []
"""
SOLUTION = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
"""


def opened(source: str) -> Opening:
    session = Session(Worker.start(Post(choose(None, "cpu"))), CPU, Deadlines())

    def begin_load(session: Session) -> None:
        session.begin_load("problem.py", source, "Model", [], 1, torch.float32, {"scale": torch.full((3,), 2.0)})

    return Opening(session, begin_load)


def seconds(of: Any) -> float:
    begin = time.monotonic()
    of()
    return time.monotonic() - begin


def test_no_step_is_waited_for_before_the_end() -> None:
    opening = opened(SLOW)
    with opening._session:
        waited = [seconds(opening.go_on)]
        begin = time.monotonic()
        while not opening._loads and time.monotonic() - begin < SECONDS:
            time.sleep(0.01)
            waited.append(seconds(opening.go_on))
        assert opening._loads
        waited.append(seconds(opening.go_on))  # it constructs the reference
        assert max(waited) < CONSTRUCTED / 2
        assert opening._session.channel.is_readable(SECONDS)
        assert seconds(opening.finish) < CONSTRUCTED / 2
        x = torch.rand(4, 3)
        opening._session.run([[x]])
        answers = opening._session.fetch(0, [x]).tensors
        assert answers is not None and torch.equal(answers[0], 2 * x) and opening._session.phase is Phase.TIME


def test_it_may_be_finished_at_once() -> None:
    opening = opened(SLOW)
    with opening._session:
        assert opening.finish() is opening._session


def test_what_is_constructed_when_the_session_ends_is_gone() -> None:
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    opening = opened(SLOW)
    while not opening._loads:
        opening.go_on()
    opening._session.close()
    assert opening._session.process.poll() is not None
    assert held() == before


def test_a_reference_that_fails_there_is_told_when_it_is_waited_for() -> None:
    opening = opened(FAILS)
    with opening._session, pytest.raises(Ended, match="no reference") as ended:
        opening.finish()
    assert ended.value.status is Status.LOAD_ERROR


@pytest.mark.parametrize("plan", [Plan(rounds=4, seconds=0), Plan(rounds=4, seconds=0, round_bytes=1)])
def test_the_reference_is_constructed_while_the_solution_is_checked(
    plan: Plan, tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large problem, too."""
    (problem := tmp_path / "problem.py").write_text(PROBLEM)
    (solution := tmp_path / "solution.py").write_text(SOLUTION)
    begun: list[bool] = []
    finish = Opening.finish

    def noted(opening: Opening) -> Session:
        begun.append(opening._loads)
        return finish(opening)

    def started(session: Session) -> bool:
        session._hear_first_word()  # on a loaded machine a worker may be up after the last question
        return True

    monkeypatch.setattr(Opening, "finish", noted)
    monkeypatch.setattr(Session, "is_started", started)
    verdict = verdict_on(problem, solution, device, plan=plan)
    assert verdict.status is Status.PASSED, verdict.message
    assert begun[0]


HELD_UP = f"""
import time
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep({2 * SLOW_SECONDS})
        self.scale = torch.nn.Parameter(torch.ones(64))

    def forward(self, x):
        return (x * self.scale).softmax(-1)

def get_inputs():
    return [torch.rand(16, 64)]

def get_init_inputs():
    return []
"""


def judged_with_steps(
    problem: Path, solution: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The classes that were asked for and waited for, in order."""
    steps: list[str] = []
    names: dict[Session, str] = {}
    begin_load, await_load = Session.begin_load, Session.await_load

    def begun(session: Session, file_name: str, source: str, class_name: str, *asked: Any, **how: Any) -> None:
        names[session] = class_name
        steps.append(f"ask {class_name}")
        begin_load(session, file_name, source, class_name, *asked, **how)

    def awaited(session: Session) -> Any:
        steps.append(f"await {names[session]}")
        return await_load(session)

    monkeypatch.setattr(Session, "begin_load", begun)
    monkeypatch.setattr(Session, "await_load", awaited)
    verdict = verdict_on(problem, solution, device, plan=Plan(rounds=4, seconds=0))
    assert verdict.status is Status.PASSED, verdict.message
    return steps


def test_both_are_constructed_beside_each_other_where_that_takes_long(
    tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    (problem := tmp_path / "problem.py").write_text(HELD_UP)
    (solution := tmp_path / "solution.py").write_text(HELD_UP.replace("class Model", "class ModelNew"))
    steps = judged_with_steps(problem, solution, device, monkeypatch)
    assert steps == ["ask ModelNew", "ask Model", "await ModelNew", "await Model"]


def test_a_baseline_with_weights_that_the_solution_cannot_take_is_constructed_anew(
    tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    (problem := tmp_path / "problem.py").write_text(HELD_UP)
    (solution := tmp_path / "solution.py").write_text(SOLUTION)
    steps = judged_with_steps(problem, solution, device, monkeypatch)
    assert steps == ["ask ModelNew", "ask Model", "await ModelNew", "ask Model", "await Model"]


@pytest.mark.parametrize(
    ("call", "round_bytes", "libraries"),
    [("x @ x.mT", 1 << 20, True), ("x @ x.mT", 1, False), ("x.softmax(-1)", 1 << 20, False)],
)
def test_the_libraries_begin_beside_the_checks_where_a_small_reference_multiplies(
    call: str, round_bytes: int, libraries: bool, tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    (problem := tmp_path / "problem.py").write_text(PROBLEM.replace("x.softmax(-1)", call))
    (solution := tmp_path / "solution.py").write_text(SOLUTION.replace("torch.softmax(x, -1)", call))
    begun: dict[str, bool] = {}
    begin_load = Session.begin_load

    def noted(session: Session, file_name: str, source: str, class_name: str, *asked: Any, **how: Any) -> None:
        begun[class_name] = how.get("libraries", False)
        begin_load(session, file_name, source, class_name, *asked, **how)

    monkeypatch.setattr(Session, "begin_load", noted)
    verdict = verdict_on(problem, solution, device, plan=Plan(rounds=4, seconds=0, round_bytes=round_bytes))
    assert verdict.status is Status.PASSED, verdict.message
    assert begun == {"ModelNew": False, "Model": libraries}


def test_stressed_calls_are_made_while_the_baseline_gets_ready(
    tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    (problem := tmp_path / "problem.py").write_text(PROBLEM)
    (solution := tmp_path / "solution.py").write_text(SOLUTION)
    steps: list[str] = []
    make, finish = evaluate.stressed_again, Opening.finish

    def made(*asked: Any) -> Any:
        steps.append("made")
        return make(*asked)

    def finished(opening: Opening) -> Session:
        steps.append("waited for")
        return finish(opening)

    monkeypatch.setattr(evaluate, "stressed_again", made)
    monkeypatch.setattr(Opening, "finish", finished)
    verdict = verdict_on(problem, solution, device, plan=Plan(rounds=4, seconds=0))
    assert verdict.status is Status.PASSED, verdict.message
    assert steps[:2] == ["made", "waited for"]
