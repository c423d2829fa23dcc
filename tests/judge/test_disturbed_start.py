"""A baseline that was started, and ceilings that were measured, while the solution ran are done again, once."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from kernelyard.core.problem import Source, as_solution
from kernelyard.core.verdict import Phase, Status
from kernelyard.judge import evaluate as evaluating
from kernelyard.judge import floor
from kernelyard.judge.evaluate import evaluate
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.launch import SandboxedProcess, choose
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Pool
from kernelyard.suites.kernelbench import load_problem

PROBLEM = Path(__file__).parents[2] / "examples/judge/problem.py"


# The first stop is for the start of the baseline, the second for the ceilings of a CPU.
@pytest.mark.parametrize(
    ("disturbed", "status", "measured"),
    [((1,), Status.PASSED, 1), ((2,), Status.PASSED, 2), ((1, 2), Status.REJECTED, 0)],
)
def test_what_began_while_the_solution_ran_begins_anew(
    monkeypatch: pytest.MonkeyPatch, disturbed: tuple[int, ...], status: Status, measured: int
) -> None:
    stops: list[SandboxedProcess] = []
    stopped, measure, asked = SandboxedProcess.stopped, floor.measure_ceilings, []

    @contextmanager
    def seen(process: SandboxedProcess) -> Iterator[Callable[[], str]]:
        stops.append(process)
        it_ran = "it ran" if len(stops) in disturbed else ""
        with stopped(process):
            yield lambda: it_ran

    monkeypatch.setattr(SandboxedProcess, "stopped", seen)
    monkeypatch.setattr(floor, "measure_ceilings", lambda *by, **how: asked.append(by) or measure(*by, **how))
    remembered = floor.Remembered()
    problem = load_problem(PROBLEM)
    verdict = evaluate(
        problem,
        Source(PROBLEM, as_solution(problem.source)),
        device=torch.device("cpu"),
        dtype=torch.float32,
        sandbox=choose(None, "cpu"),
        limits=Limits(),
        plan=Plan(rounds=3, seconds=0),
        ceilings=remembered,
    )
    assert (verdict.status, len(asked)) == (status, measured), verdict.message
    assert bool(remembered._known) is (status is Status.PASSED)
    (flag,) = [flag for flag in verdict.flags if flag.name == "ran_in_anothers_turn"]
    assert flag.evidence == "the solution: it ran; what was timed or begun then is left out"
    if status is Status.REJECTED:
        assert verdict.phase is Phase.TIME


BEFORE, CHECKS = ["starting workers", "a worker", "checking"], ["checking under stress", "starting the baseline"]


@pytest.mark.parametrize(
    ("round_bytes", "ample", "right", "order"),
    [
        (1 << 30, True, True, [*BEFORE, "a worker", *CHECKS]),
        (1, True, True, [*BEFORE, "a worker", *CHECKS]),
        (1, False, True, [*BEFORE, *CHECKS, "a worker"]),
        (1 << 30, True, False, BEFORE),
    ],
)
def test_where_there_is_room_the_baseline_begins_while_the_solution_is_checked(
    monkeypatch: pytest.MonkeyPatch, round_bytes: int, ample: bool, right: bool, order: list[str]
) -> None:
    """Beside gigabytes the device may have none for both yet; and a wrong first answer costs one worker."""
    events: list[str] = []
    take = Pool.take
    monkeypatch.setattr(Pool, "take", lambda pool: events.append("a worker") or take(pool))
    monkeypatch.setattr(evaluating, "is_ample", lambda *_: ample)
    problem = load_problem(PROBLEM)
    text = as_solution(problem.source)
    verdict = evaluate(
        problem,
        Source(PROBLEM, text if right else text.replace("torch.softmax(", "0.5 + torch.softmax(")),
        device=torch.device("cpu"),
        dtype=torch.float32,
        sandbox=choose(None, "cpu"),
        limits=Limits(),
        plan=Plan(rounds=3, seconds=0, round_bytes=round_bytes, second_look=math.inf),
        on_phase=events.append,
    )
    assert (verdict.status is Status.PASSED) is right, verdict.message
    assert [event for event in events if event in {"a worker", *BEFORE, *CHECKS}] == order
