"""Float64 answers by parts of the batch: the same, where rows have nothing to do with each other, and else not used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelyard.core.operator import Tolerance
from kernelyard.core.problem import Problem, Source
from kernelyard.judge import exam as examining
from kernelyard.judge.exam import Exam

CPU = torch.device("cpu")
STEPS: list[int] = []


class Model(torch.nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.call = call

    def forward(self, *arguments: Tensor) -> Any:
        STEPS.append(len(arguments[0]))
        return self.call(self.linear, *arguments)


def examined(
    call: Callable[..., Any], *shapes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, scale: float = 1.0
) -> Exam:
    monkeypatch.setattr(examining, "PART_BYTES", 1024)
    problem = Problem(
        Source(Path("made.py"), ""),
        model_class=lambda: Model(call),
        get_inputs=lambda: [scale * torch.randn(shape) for shape in shapes],
        get_init_inputs=list,
    )
    exam = Exam(problem, torch.float32, CPU, Tolerance())
    exam.first_question()
    return exam


@pytest.mark.parametrize(
    ("call", "shapes", "step"),
    [
        (lambda linear, x: linear(x).softmax(-1), ((100, 8),), 16),
        (lambda linear, x: (linear(x), x.sum(1)), ((100, 8),), 15),
        (lambda linear, x, w: linear(x) @ w, ((100, 8), (8, 4)), 20),
    ],
    ids=["softmax", "two answers", "an input without rows"],
)
def test_rows_that_have_nothing_to_do_with_each_other(
    call: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exam = examined(call, *shapes, monkeypatch=monkeypatch)
    assert exam.parted == (100, step)
    arguments = exam.arguments()
    STEPS.clear()
    answer = exam.exact_answer(arguments)
    assert max(STEPS) == step and sum(STEPS) == 100
    exam.parted = None
    for got, whole in zip(answer, exam.exact_answer(arguments), strict=True):
        assert got.dtype is torch.float64
        torch.testing.assert_close(got, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda linear, x: linear(x) - x.mean(0), (100, 8)),
        (lambda linear, x: linear(x).cumsum(0), (100, 8)),
        (lambda linear, x: linear(x.view(100, 8)), (100, 8)),
        (lambda linear, x: linear(x).sum(0), (100, 8)),
        (lambda linear, x: x @ x.mT, (64, 8)),
        (lambda linear, x: linear(x), (8, 8)),
    ],
    ids=["mean over the batch", "running sum", "knows its batch", "no rows in the answer", "all pairs", "small"],
)
def test_rows_that_need_each_other_stay_together(
    call: Callable[..., Any], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    exam = examined(call, shape, monkeypatch=monkeypatch)
    assert exam.parted is None
    arguments = exam.arguments()
    STEPS.clear()
    exam.exact_answer(arguments)
    assert [shape[0]] == STEPS


def test_another_number_of_rows_is_computed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    exam = examined(lambda linear, x: linear(x), (100, 8), monkeypatch=monkeypatch)
    STEPS.clear()
    (answer,) = exam.exact_answer([torch.randn(60, 8)])
    assert STEPS == [60] and answer.shape == (60, 8)


def test_rows_that_need_each_other_later_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divided by the batch's largest element, where that is above one: it is not, in the first question."""
    exam = examined(lambda _, x: x / x.abs().max().clamp(min=1), (100, 8), monkeypatch=monkeypatch, scale=0.1)
    assert exam.parted is not None
    arguments = [torch.randn(100, 8)]
    question = exam.question(arguments)
    assert exam.parted is None
    torch.testing.assert_close(question.reference[0], arguments[0].double() / arguments[0].double().abs().max())


def test_of_a_large_question_the_reference_gets_no_copy_and_may_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It left the first inputs as they were, but may change others: of what is small it has copies all the same."""
    later = False

    def call(linear: torch.nn.Linear, x: Tensor) -> Tensor:
        return (x.abs_() if later else x).sum(-1)

    exam, small = examined(call, (100, 8), monkeypatch=monkeypatch), examined(call, (9, 8), monkeypatch=monkeypatch)
    given, later = exam.arguments(), True
    with pytest.raises(examining.InvalidProblem, match="the reference changes its inputs; expected IN_PLACE = True"):
        exam.honest(given)
    assert bool((given[0] >= 0).all()), "it was the one copy"
    for given, honest in ((small.arguments(), small.honest), (_uncounted(exam.arguments()), exam.honest)):
        honest(given)
        assert bool((given[0] < 0).any())


def _uncounted(given: list[Tensor]) -> list[Tensor]:
    with torch.inference_mode():
        return [x.clone() for x in given]
