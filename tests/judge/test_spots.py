"""A look at a large answer: float64 of some parts, the rest by the honest answer; a pass is all it can say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelyard.core.operator import Tolerance
from kernelyard.core.problem import Problem, Source
from kernelyard.core.verdict import Status
from kernelyard.judge import exam as examining
from kernelyard.judge import looks, spots
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import End, Findings
from kernelyard.judge.spots import spot_mark, spots_of
from kernelyard.sandbox.form import Form
from kernelyard.sandbox.handing import describe as describe_output
from kernelyard.sandbox.returned import Fetched, Kept
from kernelyard.sandbox.wire import Container

CPU = torch.device("cpu")
ROWS, PARTS = 256, 32


class Model(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.softmax(-1), x.argmax(-1, keepdim=True)


@pytest.fixture
def exam(monkeypatch: pytest.MonkeyPatch) -> Exam:
    monkeypatch.setattr(examining, "PART_BYTES", (2 * 64 * 4 + 8) * ROWS // PARTS)
    problem = Problem(Source(Path("made.py"), ""), Model, lambda: [torch.randn(ROWS, 64)], list)
    made = Exam(problem, torch.float32, CPU, Tolerance())
    made.spots = spots_of(made, made.first_question())
    assert made.parted == made.spots == (ROWS, ROWS // PARTS)
    return made


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever float64 takes is slow."""
    monkeypatch.setattr(spots, "SLOW_SECONDS", 0.0)


def examined(call: Callable[[Tensor], Any], rows: int = ROWS) -> Exam:
    class Reference(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return call(x)

    problem = Problem(Source(Path("made.py"), ""), Reference, lambda: [torch.randn(rows, 64)], list)
    made = Exam(problem, torch.float32, CPU, Tolerance())
    made.spots = spots_of(made, made.first_question())
    return made


def fetched(*tensors: Tensor) -> Fetched:
    form = Form((Container("tuple", len(tensors)),))
    outputs = tuple(describe_output(f"output[{i}]", tensor, form) for i, tensor in enumerate(tensors))
    return Fetched(outputs, tensors)


def fetched_alone(tensor: Tensor) -> Fetched:
    """What is returned by itself."""
    return Fetched((describe_output("output", tensor, Form(())),), (tensor,))


def right(x: Tensor) -> list[Tensor]:
    """Not bit for bit the honest one."""
    powers = (x - x.amax(-1, keepdim=True)).exp()
    return [powers / powers.sum(-1, keepdim=True), x.argmax(-1, keepdim=True)]


def wrong_row(answers: list[Tensor]) -> None:
    answers[0][100] *= 1.001


def wrong_index(answers: list[Tensor]) -> None:
    answers[1][17] += 1


def not_a_number(answers: list[Tensor]) -> None:
    answers[0][255, 3] = float("nan")


def half_precision(answers: list[Tensor]) -> None:
    answers[0][:] = answers[0].half().float()


def another_dtype(answers: list[Tensor]) -> None:
    answers[0] = answers[0].double()


def test_a_right_answer_passes_by_a_quarter_of_its_parts(exam: Exam) -> None:
    asked: list[int] = []
    exact = exam.exact_parts
    exam.exact_parts = lambda parts: asked.append(sum(len(part[0]) for part in parts)) or exact(parts)  # type: ignore
    arguments = exam.arguments()
    mark = spot_mark(exam, arguments, exam.honest(arguments), fetched(*right(arguments[0])))
    assert mark is not None and mark.status is Status.PASSED
    assert asked == [ROWS // spots.SHARE]
    assert [one.elements for one in mark.errors] == [64 * ROWS // spots.SHARE, ROWS // spots.SHARE]


@pytest.mark.parametrize("spoil", [wrong_row, wrong_index, not_a_number, half_precision, another_dtype])
def test_what_is_wrong_anywhere_is_left_to_the_whole_which_refuses_it(
    spoil: Callable[[list[Tensor]], None], exam: Exam
) -> None:
    arguments = exam.arguments()
    answers = right(arguments[0])
    spoil(answers)
    for _ in range(20):
        assert spot_mark(exam, arguments, exam.honest(arguments), fetched(*answers)) is None
    answer = Kept(0, fetched(*answers).outputs, torch.empty(0, dtype=torch.uint8), written=True)
    held: dict[str, Any] = {
        "handed_over": lambda *_: fetched(*answers), "inputs_stay": lambda *_: True, "PART_BYTES": 0
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in held.items():
            patch.setattr(looks, name, value)
        with pytest.raises(End) as end:
            looks.look(exam, None, Findings(), answer, arguments)  # type: ignore[arg-type]
    assert end.value.status in (Status.INCORRECT_VALUE, Status.INCORRECT_DTYPE)


def test_an_imprecise_part_is_met_when_it_is_drawn(exam: Exam) -> None:
    """Elements that the largest error says nothing of: a thousandth of the small ones, in one part."""
    arguments = [torch.cat([torch.full((ROWS, 32), -20.0), torch.randn(ROWS, 32)], 1) + torch.rand(ROWS, 64)]
    answers = right(arguments[0])
    answers[0][8:16, :32] *= 1.001
    told = [spot_mark(exam, arguments, exam.honest(arguments), fetched(*answers)) is None for _ in range(200)]
    assert 20 < sum(told) < 80, "one part in four is drawn"


def test_where_rows_need_each_other_in_this_question_parts_tell_nothing(exam: Exam) -> None:
    arguments = exam.arguments()
    honest = exam.honest(arguments)
    exam.usual = (0.0, 0.0)
    honest.answers[0].mul_(1.01)
    assert spot_mark(exam, arguments, honest, fetched(*honest.answers)) is None


def test_a_question_that_is_asked_as_a_whole_is_looked_at_as_a_whole(exam: Exam) -> None:
    exam.spots = None
    arguments = exam.arguments()
    assert spot_mark(exam, arguments, exam.honest(arguments), fetched(*right(arguments[0]))) is None


def test_no_room_for_a_quarter_is_left_to_the_whole(exam: Exam) -> None:
    def no_room(_: Any) -> Any:
        raise torch.OutOfMemoryError("none")

    exam.exact_parts = no_room  # type: ignore[method-assign]
    arguments = exam.arguments()
    assert spot_mark(exam, arguments, exam.honest(arguments), fetched(*right(arguments[0]))) is None


@pytest.mark.parametrize(("rows", "step"), [(ROWS, ROWS // 8), (100, 12), (3, 1)])
@pytest.mark.usefixtures("slow")
def test_of_a_small_question_that_float64_is_slow_to_answer_eight_parts_are_made(rows: int, step: int) -> None:
    made = examined(lambda x: x.softmax(-1), rows)
    assert made.parted is None and made.spots == (rows, step)
    arguments = made.arguments()
    powers = (arguments[0] - arguments[0].amax(-1, keepdim=True)).exp()
    answer = powers / powers.sum(-1, keepdim=True)
    mark = spot_mark(made, arguments, made.honest(arguments), fetched_alone(answer))
    assert mark is not None and mark.status is Status.PASSED and mark.errors[0].elements < answer.numel()
    answer[rows // 2] *= 1.001
    assert spot_mark(made, arguments, made.honest(arguments), fetched_alone(answer)) is None


@pytest.mark.parametrize(
    "call", [lambda x: x - x.mean(0), lambda x: x.cumsum(0), lambda x: x.sum(0)], ids=["mean", "running sum", "no rows"]
)
@pytest.mark.usefixtures("slow")
def test_where_rows_have_to_do_with_each_other_there_are_no_parts(call: Callable[[Tensor], Any]) -> None:
    assert examined(call).spots is None


def test_what_float64_answers_at_once_is_asked_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spots, "SLOW_SECONDS", 60.0)
    assert examined(lambda x: x.softmax(-1)).spots is None


@pytest.mark.usefixtures("slow")
def test_rows_that_need_each_other_in_a_later_question_are_asked_as_a_whole() -> None:
    """Divided by the largest of all, where that is above six: it is not, in the first question."""
    made = examined(lambda x: x / x.abs().max().clamp(min=6))
    assert made.spots
    arguments = [10 * torch.randn(ROWS, 64)]
    honest = made.honest(arguments)
    assert spot_mark(made, arguments, honest, fetched_alone(*honest.answers)) is None
    mark = spots.mark_of(made, arguments, honest, fetched_alone(*honest.answers))
    assert mark.status is Status.PASSED
