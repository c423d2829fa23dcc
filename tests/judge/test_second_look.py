"""A gain beyond belief is measured twice, and has to be one both times."""

from pathlib import Path
from typing import Any

import pytest
import torch
from judged_here import verdict_on

from kernelyard.core.verdict import Decision, Status, Timing
from kernelyard.judge.evaluate import _Attempt, _looked_at
from kernelyard.judge.findings import Findings, Measurement
from kernelyard.judge.plan import Plan
from kernelyard.judge.statistics import Ratio
from kernelyard.sandbox.session import Session

# On a GPU the device has to be busy: of what launching takes a relay shows nothing.
MANY_PRODUCTS = """
import torch
from torch import nn

SIZE = 1024 if torch.cuda.is_available() else 256


class Model(nn.Module):
    def forward(self, x):
        for _ in range(40):
            y = torch.relu(x @ x)
        return y


def get_inputs():
    return [torch.rand(SIZE, SIZE)]


def get_init_inputs():
    return []
"""
ONE_PRODUCT = MANY_PRODUCTS.replace("class Model(", "class ModelNew(").replace("range(40)", "range(1)")


def attempt(speedup: float, decision: Decision, status: Status = Status.PASSED) -> _Attempt:
    timing = Timing(samples_ms=(1.0,), timer="host", cache="cold")
    measured = Measurement(
        baseline=timing,
        time=timing,
        ratio=Ratio(speedup, 0.9 * speedup, 1.1 * speedup),
        noise=0.01,
        rounds=8,
        confirmed=decision is Decision.FASTER,
        decision=decision,
        host_baseline=timing,
        host_time=timing,
    )
    passed = status is Status.PASSED
    return _Attempt(status, "" if passed else "why", None, Findings(measured=measured if passed else None))


def looked_at(*attempts: _Attempt) -> tuple[_Attempt, int]:
    left = list(attempts)
    made = _looked_at(lambda: left.pop(0), 10.0)
    return made, len(attempts) - len(left)


def test_a_gain_within_belief_is_looked_at_once() -> None:
    made, looks = looked_at(attempt(9.0, Decision.FASTER), attempt(1.0, Decision.TIE))
    assert looks == 1 and made.gain == 9.0 and not made.found.flags


def test_the_smaller_of_two_large_gains_counts() -> None:
    made, looks = looked_at(attempt(13.0, Decision.FASTER), attempt(12.0, Decision.FASTER))
    assert looks == 2 and made.gain == 12.0
    assert made.found.measured is not None and made.found.measured.decision is Decision.FASTER
    assert [flag.name for flag in made.found.flags] == ["large_gain"]


@pytest.mark.parametrize(
    "decisions", [(Decision.FASTER, Decision.INCONCLUSIVE), (Decision.INCONCLUSIVE, Decision.FASTER)]
)
@pytest.mark.parametrize("speedups", [(13.0, 12.0), (12.0, 13.0)])
def test_a_large_gain_that_was_confirmed_once_is_not_known(
    decisions: tuple[Decision, Decision], speedups: tuple[float, float]
) -> None:
    """One lie in 20 is confirmed by chance: on a loaded CPU a tenth of the time, claimed, was `faster` so."""
    made, _ = looked_at(*map(attempt, speedups, decisions))
    assert made.found.measured is not None
    assert made.found.measured.decision is Decision.INCONCLUSIVE and made.found.measured.confirmed is False


def test_who_is_refused_at_the_second_look_is_refused() -> None:
    made, _ = looked_at(attempt(13.0, Decision.FASTER), attempt(0.0, Decision.TIE, Status.REJECTED))
    assert made.status is Status.REJECTED and made.message == "after a first look at 13x: why"


def test_a_large_gain_is_measured_in_new_processes_on_new_seeds(
    tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    (problem := tmp_path / "problem.py").write_text(MANY_PRODUCTS)
    (solution := tmp_path / "solution.py").write_text(ONE_PRODUCT)
    loaded: list[tuple[Session, str, int]] = []
    begin_load = Session.begin_load

    def noted(session: Session, *of: Any, **more: Any) -> None:
        loaded.append((session, of[2], of[4]))
        begin_load(session, *of, **more)

    monkeypatch.setattr(Session, "begin_load", noted)
    verdict = verdict_on(problem, solution, device, plan=Plan(rounds=4, seconds=0, second_look=2.0))
    assert verdict.status is Status.PASSED, verdict.message
    assert len({id(session) for session, _, _ in loaded}) == len(loaded)
    # On a GPU a look may end with another worker with the reference, in the solution's place.
    starts = [i for i, (_, name, _) in enumerate(loaded) if name == "ModelNew"]
    assert len(starts) == 2
    looks = loaded[: starts[1]], loaded[starts[1] :]
    assert all({"Model"} == {name for _, name, _ in look[1:]} for look in looks)
    assert all(len(look) == 2 or (len(look) == 3 and device.type != "cpu") for look in looks)
    first, second = ({seed for _, _, seed in look} for look in looks)
    assert len(first) == len(second) == 1 and first != second
    (flag,) = (flag for flag in verdict.flags if flag.name == "large_gain")
    assert "at a second look in new processes" in flag.evidence
    assert verdict.speedup is not None and f"{verdict.speedup:.3g}x" in flag.evidence
