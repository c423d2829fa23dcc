"""What one verdict may leave to the next: workers that wait, and what the device did when nothing else ran."""

from collections.abc import Iterator

import pytest
import torch
from judged_here import LIMITS, PROBLEM, verdict_on

from kernelyard.core.verdict import Status
from kernelyard.judge import floor
from kernelyard.judge.floor import Ceilings, Remembered
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.pool import Pool, Post, Worker

CPU = torch.device("cpu")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Of which dtype, and whether with a matrix product: each time that the device is measured."""
    asked: list[tuple[str, bool]] = []

    def measure(device: torch.device, dtype: str, *, matrix: bool) -> Ceilings:
        asked.append((dtype, matrix))
        # So much that no honest call is too quick for it.
        return Ceilings(copy_gbps=1e6 * len(asked), cached_gbps=None, tflops=None, datasheet_gbps=None)

    monkeypatch.setattr(floor, "measure_ceilings", measure)
    return asked


def test_a_device_is_measured_once_for_each_thing_in_question(measured: list[tuple[str, bool]]) -> None:
    ceilings = Remembered()
    asked = [("float32", False), ("float32", True), ("bfloat16", True)]
    for _ in range(3):
        assert [ceilings(CPU, dtype, matrix=matrix).copy_gbps for dtype, matrix in asked] == [1e6, 2e6, 3e6]
    assert measured == asked
    ceilings.forget()
    assert ceilings(CPU, "float32", matrix=False).copy_gbps == 4e6


class Counted(Pool):
    """A pool that counts what is taken."""

    taken = 0

    def take(self) -> Worker:
        self.taken += 1
        return super().take()


@pytest.fixture
def workers() -> Iterator[Counted]:
    with Counted(Post(choose(None, "cpu"), LIMITS), size=2) as pool:
        yield pool


def test_a_verdict_takes_both_from_who_keeps_them(workers: Counted, measured: list[tuple[str, bool]]) -> None:
    ceilings = Remembered()
    known = ceilings(CPU, "float32", matrix=False)
    plan = Plan(rounds=3, seconds=0)
    verdict = verdict_on(PROBLEM, PROBLEM.with_name("correct.py"), CPU, plan=plan, pool=workers, ceilings=ceilings)
    assert verdict.status is Status.PASSED, verdict.message
    assert workers.taken == 2, "the solution's and the baseline's"
    assert verdict.floor is not None and verdict.floor.copy_gbps == known.copy_gbps
    assert measured == [("float32", False)]
