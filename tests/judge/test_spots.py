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
from kernelyard.judge.spots import spot_mark
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
    made.first_question()
    assert made.parted == (ROWS, ROWS // PARTS)
    return made


def fetched(*tensors: Tensor) -> Fetched:
    form = Form((Container("tuple", len(tensors)),))
    outputs = tuple(describe_output(f"output[{i}]", tensor, form) for i, tensor in enumerate(tensors))
    return Fetched(outputs, tensors)


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
    exam.parted = None
    arguments = exam.arguments()
    assert spot_mark(exam, arguments, exam.honest(arguments), fetched(*right(arguments[0]))) is None


def test_no_room_for_a_quarter_is_left_to_the_whole(exam: Exam) -> None:
    def no_room(_: Any) -> Any:
        raise torch.OutOfMemoryError("none")

    exam.exact_parts = no_room  # type: ignore[method-assign]
    arguments = exam.arguments()
    assert spot_mark(exam, arguments, exam.honest(arguments), fetched(*right(arguments[0]))) is None
