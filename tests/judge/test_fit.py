"""What a problem may be made of: numbers as exact as float64 asks, and nothing that cannot reach a worker."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from honest import problem
from torch import Tensor, nn

from kernelyard.core.operator import Tolerance
from kernelyard.core.problem import Problem, Source, place
from kernelyard.core.verdict import Status
from kernelyard.judge.counting import count
from kernelyard.judge.evaluate import evaluate
from kernelyard.judge.exam import Exam
from kernelyard.judge.plan import Plan
from kernelyard.judge.reference import InvalidProblem
from kernelyard.judge.weights import converted, handed_over, redraw_constants
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.limits import Limits
from kernelyard.suites.kernelbench import load_problem, read_solution

CPU = torch.device("cpu")
COMPLEX = torch.complex64


def exam_of(made: Problem, dtype: torch.dtype = torch.float32) -> Exam:
    return Exam(made, dtype, CPU, Tolerance())


TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def doubled(p_x, p_y, BLOCK: tl.constexpr):
    o_x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p_y + o_x, 2 * tl.load(p_x + o_x))

class {name}(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        doubled[(x.numel() // 1024,)](x, y, BLOCK=1024)
        return y

def get_inputs():
    return [torch.randn(64, 1024)]

def get_init_inputs():
    return []
"""


@pytest.mark.gpu
def test_a_reference_may_launch_kernels_of_its_own(tmp_path: Path, device: torch.device) -> None:
    """Counted on the meta device, it launched one at address zero in the judge's process, and no verdict was left."""
    (reference := tmp_path / "problem.py").write_text(TRITON.format(name="Model"))
    (solution := tmp_path / "solution.py").write_text(TRITON.format(name="ModelNew"))
    verdict = evaluate(
        load_problem(reference), read_solution(solution), device=device, dtype=torch.float32,
        sandbox=choose(None, str(device)), limits=Limits(memory_bytes=6 << 30),
        plan=replace(Plan(), rounds=4, most_rounds=4),
    )  # fmt: skip
    assert verdict.status is Status.PASSED, verdict.message
    assert torch.ones(1, device=device).item() == 1


def with_buffer(value: Tensor) -> Problem:
    """Twice its input."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", value)

        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    return Problem(Source(Path("made_up.py"), ""), Model, lambda: [torch.randn(4)], list)


def test_every_other_integer_is_no_quantised_answer() -> None:
    """In bfloat16 one in fifty of the honest ones is on an edge: that makes no room for half of all."""
    made = problem(lambda x: torch.round(nn.functional.gelu(x) * 20).int(), lambda: [torch.randn(64, 512)])
    exam = exam_of(made, torch.bfloat16)
    question = exam.first_question()
    (honest,) = question.honest
    assert exam.mark_values(question, [honest]).status is Status.PASSED
    assert exam.mark_values(question, [question.reference[0].int()]).status is Status.PASSED
    assert exam.mark_values(question, [honest // 2 * 2]).status is Status.INCORRECT_VALUE


def test_a_large_integer_is_asked_for_to_the_last_digit() -> None:
    exam = exam_of(problem(lambda i: i + 2**60, lambda: [torch.randint(2**20, (64,))]))
    question = exam.first_question()
    assert exam.mark_values(question, [question.honest[0] + 1]).status is Status.INCORRECT_VALUE


def test_complex_inputs_are_held_in_complex128_for_float64() -> None:
    x = torch.randn(2, 3, dtype=COMPLEX)
    assert place(x, torch.float64, CPU).dtype is torch.complex128
    assert place(x, torch.bfloat16, CPU).dtype is COMPLEX
    made = problem(lambda x: torch.view_as_real(torch.fft.fft(x)), lambda: [torch.randn(4, 4096, dtype=COMPLEX)])
    exam = exam_of(made)
    question = exam.first_question()
    precise = torch.view_as_real(torch.fft.fft(question.arguments[0].to(torch.complex128)))
    assert torch.equal(question.reference[0], precise)
    assert exam.mark_values(question, [precise.float()]).status is Status.PASSED


def test_a_complex_attribute_is_kept_as_precise() -> None:
    model = nn.Identity()
    model.turn = torch.randn(4, dtype=COMPLEX)
    assert converted(model, torch.float64, nn.Identity).turn.dtype is torch.complex128


def test_a_lazy_conjugate_is_laid_out_as_it_reads() -> None:
    x = torch.randn(4, dtype=COMPLEX)
    placed = place(x.conj(), torch.float32, CPU)
    assert not placed.is_conj() and torch.equal(placed, x.conj())
    assert not place(x.conj().imag, torch.float32, CPU).is_neg()


def test_a_constant_of_one_number_is_never_redrawn_next_to_itself() -> None:
    """In bfloat16 an answer may be off by 3 %: a scale of one number that was drawn within that could be left out."""
    model = nn.ParameterList([torch.full((), c) for c in (1.0, 0.0, -0.07) for _ in range(100)])
    constants = redraw_constants(model)
    moved = [
        abs(value.item() - c) / (abs(c) or 1) for value, c in zip(model.parameters(), constants.values(), strict=True)
    ]
    assert len(moved) == 300 and min(moved) > 0.124 and max(moved) < 0.251


def test_an_expanded_buffer_stays_as_it_is() -> None:
    made = with_buffer(torch.ones(1).expand(64))
    assert redraw_constants(made.model_class()) == {}
    exam = exam_of(made)
    exam.first_question()
    assert handed_over(exam.model) == {}, "no worker can write into it either"


def test_state_that_is_no_tensor_is_not_counted_and_cannot_be_handed_over() -> None:
    class Model(nn.Linear):
        def get_extra_state(self) -> Any:
            return {"k": 1.0}

    made = Problem(Source(Path("made_up.py"), ""), lambda: Model(4, 4), lambda: [torch.randn(2, 4)], list)
    assert count(made, torch.float32).elements == 8 + 8 + 20
    with pytest.raises(InvalidProblem, match=r"^weight _extra_state is a dict; expected a tensor"):
        exam_of(made)


@pytest.mark.parametrize(("value", "infinite"), [(65510.0, False), (65519.9, False), (65520.0, True), (-7e4, True)])
def test_an_infinity_is_what_rounding_makes_one(value: float, infinite: bool) -> None:
    exam = exam_of(problem(torch.relu, lambda: [torch.ones(2)], allow_nonfinite=True), torch.float16)
    exam.exact_answer = lambda _: [torch.tensor([1.0, value], dtype=torch.float64)]  # type: ignore[method-assign]
    (reference,) = exam.question().reference
    expected = [1.0, torch.inf if value > 0 else -torch.inf] if infinite else [1.0, value]
    assert reference.tolist() == expected


UNFIT: dict[str, tuple[Callable[..., Any], str]] = {
    "fp8": (lambda x: x.to(torch.float8_e4m3fn), "output is of float8_e4m3fn; expected one of float64"),
    "uint16": (lambda x: x.abs().to(torch.uint16), "output is of uint16"),
    "sparse": (lambda x: x.relu().to_sparse(), "output is of layout torch.sparse_coo; expected a strided tensor"),
    "many": (lambda x: [x + i for i in range(1025)], "the reference returns 1025 tensors; expected 1024 at most"),
}


@pytest.mark.parametrize(("call", "why"), UNFIT.values(), ids=UNFIT)
def test_an_answer_that_no_worker_could_hand_over_is_no_answer(call: Callable[..., Any], why: str) -> None:
    with pytest.raises(InvalidProblem, match=why):
        exam_of(problem(call, lambda: [torch.randn(4, 4)])).first_question()


def test_inputs_and_weights_that_cannot_be_handed_over_are_none() -> None:
    small = torch.arange(4).to(torch.uint16)
    with pytest.raises(InvalidProblem, match=r"^inputs\[1\] is of uint16"):
        exam_of(problem(lambda x, i: x + i.float(), lambda: [torch.randn(4), small])).first_question()
    with pytest.raises(InvalidProblem, match=r"^weight w is of uint16"):
        exam_of(with_buffer(small))
    with pytest.raises(InvalidProblem, match=r"complex weights, as w; expected torch.view_as_real's"):
        exam_of(with_buffer(torch.randn(4, dtype=COMPLEX)))


def test_answers_of_another_size_than_the_first_have_room_too() -> None:
    """What has none is fetched when the judge's clock stands, and until then it may be computed."""
    exam = exam_of(problem(lambda x: x[x > 0], lambda: [torch.randn(1000)]))
    sizes = [exam.first_question().honest[0].numel()]
    for _ in range(8):
        sizes.append(exam.question().honest[0].numel())
        assert sizes[-1] == sizes[0] or max(sizes) <= exam.answer[0].numel() <= 2 * max(sizes)
    assert exam.answer[0].numel() > 700 and exam.answer[0].is_meta
    same = exam_of(problem(lambda x: x.relu(), lambda: [torch.randn(10, 10)]))
    first = same.first_question().honest[0]
    same.question()
    assert same.answer[0].shape == first.shape
