"""Stresses asked again among the timed calls, on solutions that run right here in place of a worker."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelyard.core.verdict import Decision, Status, StressRecord
from kernelyard.judge.again import in_turn
from kernelyard.judge.findings import End, Findings
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.returned import Ran

sys.path.insert(0, str(Path(__file__).parent))
from honest import CASES
from timed_here import PLAN, Here, rounds_of


def of_stresses(call: Callable[..., Tensor], names: Sequence[str], plan: Plan = PLAN) -> tuple[Here, Here, Findings]:
    """`timed`, of who has passed these stresses."""
    found = Findings()
    found.stresses += [StressRecord(name=name, outcome="passed") for name in names]
    candidate, baseline = Here(call), Here(CASES["softmax"][0])
    rounds_of(candidate, baseline, plan, found)
    return candidate, baseline, found


@pytest.mark.parametrize("many", range(20))
def test_a_stress_that_was_passed_is_asked_again_among_timed_calls(many: int) -> None:
    """A softmax without its maximum is right on all of the problem's own inputs, timed ones included."""
    with pytest.raises(End, match="under the stress 'scaled_up'") as raised:
        of_stresses(lambda x: x.exp() / x.exp().sum(-1, keepdim=True), ["scaled_up"])
    assert raised.value.status is Status.INCORRECT_VALUE


def is_stressed(arguments: list[Any]) -> bool:
    """Of a problem whose inputs are 10 at most."""
    return bool(arguments[0].abs().max() > 64)


class Uneven(Here):
    """A call takes 1 ms, and under a stress as many as it says."""

    def __init__(self, under_stress: float) -> None:
        super().__init__(CASES["softmax"][0])
        self.under_stress = under_stress

    def run(self, sets: list[list[Any]], **asked: Any) -> Ran:
        kept = super().run(sets, **asked).kept
        taken = [self.under_stress if is_stressed(arguments) else 1.0 for arguments in sets]
        return Ran(tuple((one, one) for one in taken), sum(taken) / 1e3, kept)


@pytest.mark.parametrize("device", ["cpu", "xpu"])
@pytest.mark.parametrize("under_stress", [9.0, 99.0])
def test_in_every_turn_one_more_call_is_under_stress_and_its_time_does_not_count(
    device: str, under_stress: float
) -> None:
    """Who takes eleven times as long there as the baseline, by a way of his own for large numbers, says so himself."""
    found = Findings()
    found.stresses.append(StressRecord(name="scaled_up", outcome="passed"))
    candidate, baseline = Uneven(under_stress), Uneven(9.0)
    candidate.device = baseline.device = torch.device(device)
    clock, _ = rounds_of(candidate, baseline, found=found)
    for side in (candidate, baseline):
        assert sum(is_stressed(arguments) for sets in side.asked for arguments in sets) == 2 * (1 + len(clock.rounds))
    measured = found.measured
    assert measured is not None and measured.decision is Decision.TIE
    assert {*measured.time.samples_ms, *measured.baseline.samples_ms} == {1.0}
    assert all(len(one.baseline.events) == PLAN.calls_in_turn(1) for one in clock.rounds)


def test_each_stress_has_its_turn_before_one_comes_again() -> None:
    again: Any = ["scaled_up", "shifted", "integers"]
    asked = [next(turn) for turn in [in_turn(again)] for _ in range(30)]
    assert all(sorted(asked[i : i + 3]) == sorted(again) for i in range(0, 30, 3))
    assert len({tuple(asked[i : i + 3]) for i in range(0, 30, 3)}) > 1, "in the same order each time"
    assert next(in_turn([]), None) is None


@pytest.mark.parametrize("many", range(5))
def test_who_is_careful_for_the_first_fifteen_calls_is_found_among_the_later(many: int) -> None:
    calls = 0

    def careless(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x.softmax(-1) if calls <= 15 else x.exp() / x.exp().sum(-1, keepdim=True)

    with pytest.raises(End, match="under the stress 'scaled_up'"):
        of_stresses(careless, ["scaled_up"])


def test_a_large_problem_whose_rows_need_each_other_has_no_stressed_calls_among_the_timed() -> None:
    few = replace(PLAN, round_bytes=1)
    of_stresses(lambda x: x.exp() / x.exp().sum(-1, keepdim=True), ["scaled_up"], few)
