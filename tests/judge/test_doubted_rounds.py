"""How many rounds are tried, and how often the outer clock, before what they show is held against a solution."""

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelyard.judge import rounds as timing_rounds
from kernelyard.judge.findings import End
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.returned import Ran

sys.path.insert(0, str(Path(__file__).parent))
from honest import CASES
from timed_here import Here, rounds_of


@dataclass
class Late(Here):
    """Of its first requests each takes 9 ms more than a call of 1 ms accounts for."""

    requests: int = 0

    def __post_init__(self) -> None:
        super().__init__(CASES["softmax"][0])

    def run(self, sets: list[list[Any]], **asked: Any) -> Ran:
        kept = super().run(sets, **asked).kept
        return Ran(((1.0, 1.0),) * len(sets), 0.010 if len(self.asked) <= self.requests else 0.001, kept)


@pytest.mark.parametrize(("rounds", "late", "tried"), [(3, 1, 3), (3, 12, 17), (3, 99, 25), (11, 12, 22), (11, 99, 31)])
def test_few_rounds_that_do_not_count_are_no_reason_to_refuse(rounds: int, late: int, tried: int) -> None:
    plan = Plan(rounds=rounds, seconds=0, calls=2)
    phases: list[str] = []
    refused = late >= tried
    with pytest.raises(End, match=f"clock_mismatch: in {tried - 1} of {tried - 1} ") if refused else nullcontext():
        rounds_of(Late(late * plan.calls), Late(), plan, on_phase=phases.append)
    assert sum(phase.startswith("timing round") for phase in phases) == tried


@dataclass
class LateByTheOuterClock(Here):
    """9 ms a call more than it accounts for, once rounds are over, until others have waited so long."""

    phases: list[str]
    waited: list[float]
    seconds: float

    def __post_init__(self) -> None:
        super().__init__(CASES["softmax"][0])

    def run(self, sets: list[list[Any]], **asked: Any) -> Ran:
        kept = super().run(sets, **asked).kept
        late = self.phases[-1:] == ["the judge's own clock"] and sum(self.waited) < self.seconds
        return Ran(((1.0, 1.0),) * len(sets), (10 if late else 1) * len(sets) / 1e3, kept)


@pytest.mark.parametrize(("late", "waits"), [(0, 0), (4, 1), (9, 1)])
def test_what_passes_is_waited_for(late: float, waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour's fork bomb, in an honest softmax's verdict, lasted for all tries within a second."""
    waited: list[float] = []
    monkeypatch.setattr(timing_rounds.time, "sleep", waited.append)
    plan, phases = Plan(seconds=0, calls=4), list[str]()
    candidate, baseline = LateByTheOuterClock(phases, waited, late), Late()
    with pytest.raises(End, match="outside_clock") if late == 9 else nullcontext():
        rounds_of(candidate, baseline, plan, on_phase=phases.append)
    assert waited == [plan.doubt_seconds] * waits
    in_rounds = sum(phase.startswith("timing round") for phase in phases)
    asked_again = (plan.patience - 1) * 2 * plan.outside_repeats if waits else 0
    assert candidate.cores == baseline.cores and len(candidate.cores) == in_rounds + asked_again
