"""One loop over many numbers is as right as fp32 makes it, and TF32 and halves are not."""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from honest import problem
from torch import Tensor

from kernelyard.core.operator import Tolerance
from kernelyard.core.verdict import Status
from kernelyard.judge.coarse import MOST as MOST_TENSORS
from kernelyard.judge.coarse import Countless, coarse_answers
from kernelyard.judge.exam import Exam
from kernelyard.judge.loops import terms_of
from kernelyard.judge.stress import SIGNS, STRESSES, stressed
from kernelyard.judge.summing import HALF_ULP, MOST, PARTS, loops_error, rounding, with_sums_off

CPU = torch.device("cpu")
ROWS, COLUMNS = 256, 4096
SIGNS_DIFFER = next(stress for stress in STRESSES if stress.name == SIGNS)


def summed(x: Tensor) -> Tensor:
    """Over the last dim, one after another in fp32."""
    return torch.from_numpy(np.cumsum(x.numpy(), axis=-1, dtype=np.float32)[..., -1].copy())


def softmax(x: Tensor) -> Tensor:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / summed(e).unsqueeze(-1)


def layer_norm(x: Tensor) -> Tensor:
    return torch.layer_norm(x, x.shape[-1:])


def normed(x: Tensor) -> Tensor:
    mean = summed(x).unsqueeze(-1) / x.shape[-1]
    return (x - mean) * (summed((x - mean) ** 2).unsqueeze(-1) / x.shape[-1] + 1e-5).rsqrt()


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return summed(a.unsqueeze(1) * b.T)


def tf32(x: Tensor) -> Tensor:
    """With eleven bits of significand."""
    return ((x.view(torch.int32) + (1 << 12)) >> 13 << 13).view(torch.float32)


def exam_of(reference: Callable[..., Tensor], inputs: Callable[[], list[Tensor]]) -> Exam:
    exam = Exam(problem(reference, inputs), torch.float32, CPU, Tolerance())
    exam.first_question()
    return exam


CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[[], list[Tensor]]]] = {
    "sum": (lambda x: x.sum(-1), summed, lambda: [torch.rand(ROWS, COLUMNS)]),
    "softmax": (lambda x: x.softmax(-1), softmax, lambda: [torch.rand(ROWS, COLUMNS)]),
    "layer_norm": (layer_norm, normed, lambda: [torch.rand(ROWS, COLUMNS)]),
    "mean": (lambda x: x.mean(), lambda x: summed(x.sum(-1)) / x.numel(), lambda: [torch.rand(1024, 256)]),
    "matmul": (lambda a, b: a @ b, matmul, lambda: [torch.rand(32, COLUMNS), torch.rand(COLUMNS, 24)]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plain_loop_is_right(name: str) -> None:
    reference, plain, inputs = CASES[name]
    exam = exam_of(reference, inputs)
    for question in (exam.question(), exam.question(), stressed(exam, SIGNS_DIFFER)):
        mark = exam.mark_values(question, [plain(*question.arguments)])
        assert mark.status is Status.PASSED, mark.message
    exam.one_loop.needed = True
    exam.one_loop.only_short_unless_needed()
    question = exam.question()
    assert exam.mark_values(question, [plain(*question.arguments)]).status is Status.PASSED


def by_rows(norm: Callable[[Tensor], Tensor], *shape: int) -> Callable[[Tensor], Tensor]:
    """A norm of the rows of what has that shape."""
    return lambda x: norm(x.view(shape)).view_as(x)


NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer": layer_norm,
    "group": by_rows(lambda x: torch.group_norm(x, 8), ROWS // 8, 8, COLUMNS),
    "instance": by_rows(torch.nn.functional.instance_norm, ROWS // 8, 8, COLUMNS),
    "batch": lambda x: torch.nn.functional.batch_norm(x.T, None, None, training=True, eps=1e-5).T.contiguous(),
    "the author's own": lambda x: (
        (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    ),
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_a_loops_mean_that_a_difference_magnifies_is_right_and_lower_precision_is_not(
    norm: Callable[[Tensor], Tensor],
) -> None:
    exam = exam_of(norm, lambda: [torch.rand(ROWS, COLUMNS) + 5])
    for question in (exam.question(), stressed(exam, SIGNS_DIFFER)):
        mark = exam.mark_values(question, [normed(*question.arguments)])
        assert mark.status is Status.PASSED, mark.message
        for lower in (tf32, lambda x: x.half().float(), lambda x: x.bfloat16().float()):
            mark = exam.mark_values(question, [norm(lower(*question.arguments))])
            assert mark.status is Status.INCORRECT_VALUE


def coarse_in_the_norm_alone(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    _, mean, scale = torch.native_layer_norm(x, x.shape[-1:], None, None, 1e-5)
    return tf32(x - mean) * scale, mean, scale


def as_list(answer: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return [answer] if isinstance(answer, Tensor) else list(answer)


COARSE = {
    "the product of a norm": (
        lambda x, w: layer_norm(x) @ w,
        lambda x, w: tf32(layer_norm(x)) @ tf32(w),
        lambda: [torch.rand(32, COLUMNS) + 50, torch.randn(COLUMNS, 64) / 50],
    ),
    "what a constant is added to": (
        lambda x: layer_norm(x.sigmoid() + 20),
        lambda x: layer_norm(tf32(x).sigmoid() + 20),
        lambda: [torch.rand(32, COLUMNS)],
    ),
    "what is left of a difference": (
        layer_norm,
        lambda x: layer_norm(tf32(x - x.mean(-1, keepdim=True))),
        lambda: [torch.rand(64, COLUMNS) + 50],
    ),
    "a norm beside what tells at once": (
        lambda x: (layer_norm(x.sigmoid() + 20), 2 * x),
        lambda x: (layer_norm(tf32(x).sigmoid() + 20), 2 * x),
        lambda: [torch.rand(32, COLUMNS)],
    ),
    "a norm that something is added to": (
        lambda x, y: layer_norm(x.sigmoid() + 20) + y,
        lambda x, y: layer_norm(tf32(x).sigmoid() + 20) + y,
        lambda: [torch.rand(32, COLUMNS), 10 * torch.rand(32, COLUMNS)],
    ),
    "a part of the answer": (
        lambda x: torch.cat([layer_norm(x.sigmoid() + 20), 10 * x]),
        lambda x: torch.cat([layer_norm(tf32(x).sigmoid() + 20), 10 * x]),
        lambda: [torch.rand(32, COLUMNS)],
    ),
    "what a norm returns beside": (
        lambda x: torch.native_layer_norm(x, x.shape[-1:], None, None, 1e-5),
        coarse_in_the_norm_alone,
        lambda: [torch.rand(32, COLUMNS) + 50],
    ),
    "a difference of sums": (
        lambda x, y: x.sum(-1) - y.sum(-1),
        lambda x, y: tf32(x).sum(-1) - tf32(y).sum(-1),
        lambda: [torch.rand(64, 4 * COLUMNS), torch.rand(64, 4 * COLUMNS)],
    ),
}


@pytest.mark.parametrize(("reference", "lower", "inputs"), COARSE.values(), ids=COARSE)
def test_lower_precision_beside_a_sum_that_is_magnified_is_wrong(
    reference: Callable[..., Tensor], lower: Callable[..., Tensor], inputs: Callable[[], list[Tensor]]
) -> None:
    """By a ruler that knows of the sum alone each of these is right in most questions."""
    exam = exam_of(reference, inputs)
    for _ in range(3):
        question = exam.question()
        assert exam.mark_values(question, as_list(lower(*question.arguments))).status is Status.INCORRECT_VALUE


def test_an_honest_loop_beside_another_output_is_right() -> None:
    """Of integers one of sixty is off by a step, which is no distance."""
    exam = exam_of(lambda x: ((10 * x).floor().int(), layer_norm(x), 2 * x), lambda: [torch.rand(ROWS, COLUMNS) + 5])
    for _ in range(3):
        question = exam.question()
        (x,) = question.arguments
        assert exam.mark_values(question, [(10 * x).floor().int(), normed(x), 2 * x]).status is Status.PASSED


def test_of_more_operations_than_are_tried_no_longer_ruler_is_taken() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(MOST_TENSORS):
            x = x * 1
        return layer_norm(x)

    exam = exam_of(chain, lambda: [torch.rand(ROWS, COLUMNS) + 5])
    question = exam.question()
    with pytest.raises(Countless, match=f"at most {MOST_TENSORS}"):
        next(coarse_answers(question, exam.exact_answer))
    answer = normed(*question.arguments)
    assert exam.mark_values(question, [answer]).status is Status.INCORRECT_VALUE


def test_an_element_that_a_sum_turns_has_no_longer_ruler() -> None:
    exam = exam_of(lambda x: torch.where(x > x.mean(-1, keepdim=True), x, 0.0), lambda: [torch.rand(1024, COLUMNS)])
    for _ in range(3):
        question = exam.question()
        alone = replace(question, ruler=question.reference)
        off = with_sums_off(alone, math.inf, exam.exact_answer)
        assert off is not None and off[1].ruler is not None and off[1].ruler[0] is not None
        assert torch.equal(off[1].ruler[0], question.reference[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_have_no_longer_ruler(dtype: torch.dtype) -> None:
    exam = Exam(problem(layer_norm, lambda: [torch.rand(ROWS, COLUMNS) + 5]), dtype, CPU, Tolerance())
    assert with_sums_off(exam.first_question(), math.inf, lambda _: pytest.fail("nobody need be asked")) is None


def test_a_few_numbers_have_no_longer_ruler() -> None:
    exam = exam_of(lambda x: x.mean() - x.square().mean(), lambda: [torch.rand(1024, 1024)])
    off = with_sums_off(exam.question(), math.inf, exam.exact_answer)
    assert off is not None and off[1].ruler == (None,)


def test_a_variance_in_one_pass_is_wrong_far_from_zero() -> None:
    # It loses as the square of what a loop's mean loses by: at 5 it is as right as that, in one question of ten.
    exam = exam_of(layer_norm, lambda: [torch.rand(ROWS, COLUMNS) + 40])
    question = exam.question()
    x = question.arguments[0]
    mean = x.mean(-1, keepdim=True)
    one_pass = (x - mean) / ((x * x).mean(-1, keepdim=True) - mean**2 + 1e-5).sqrt()
    assert exam.mark_values(question, [one_pass]).status is Status.INCORRECT_VALUE


@pytest.mark.parametrize("columns", [1024, 4096, 16384])
@pytest.mark.parametrize("round_", [tf32, lambda x: x.half().float(), lambda x: x.bfloat16().float()])
def test_lower_precision_is_wrong_where_signs_differ(round_: Callable[[Tensor], Tensor], columns: int) -> None:
    exam = exam_of(lambda a, b: a @ b, lambda: [torch.rand(32, columns), torch.rand(columns, 24)])
    question = stressed(exam, SIGNS_DIFFER)
    got = round_(question.arguments[0]) @ round_(question.arguments[1])
    assert exam.mark_values(question, [got]).status is Status.INCORRECT_VALUE


def test_one_of_many_left_out_is_wrong() -> None:
    exam = exam_of(lambda x: x.sum(-1), lambda: [torch.rand(ROWS, COLUMNS)])
    question = exam.question()
    assert exam.mark_values(question, [question.arguments[0][:, :-1].sum(-1)]).status is Status.INCORRECT_VALUE


@pytest.mark.parametrize(("columns", "passes"), [(4096, True), (16384, False)])
def test_who_never_needed_the_ruler_has_it_for_short_sums_alone_where_no_stress_is_asked(
    columns: int, passes: bool
) -> None:
    exam = exam_of(lambda x: x.sum(-1), lambda: [torch.rand(ROWS, columns)])
    question = exam.question()
    answer = [summed(question.arguments[0])]
    assert exam.mark_values(question, answer).status is Status.PASSED and exam.one_loop.needed
    exam.one_loop.needed = False
    exam.one_loop.only_short_unless_needed()
    assert (exam.mark_values(question, answer).status is Status.PASSED) is passes


@pytest.mark.parametrize(
    ("reference", "inputs", "terms"),
    [
        (lambda x: x.relu() + x.mean(), lambda: [torch.rand(64, 64)], 64 * 64),
        (lambda x: torch.cat([x.relu().sum()[None], x.reshape(-1)]), lambda: [torch.rand(64, 64)], 2),
        (lambda x: x.softmax(-1), lambda: [torch.rand(64, 100)], 100),
        (lambda x: x.sum(0), lambda: [torch.rand(70, 50)], 70),
        (lambda a, b: a @ b, lambda: [torch.rand(30, 40), torch.rand(40, 50)], 40),
        (lambda a, b: a @ b, lambda: [torch.rand(64, 40).triu(20), torch.rand(40, 5)], 40),
        (lambda x: torch.conv2d(x, x.new_ones(8, 3, 5, 5)), lambda: [torch.rand(4, 3, 64, 64)], 75),
        (lambda x: x.mean(), lambda: [torch.rand(1000)], 1000),
        (lambda x: x.mean(), lambda: [torch.rand(9000)], PARTS),
        (lambda i: i.float().sum(0, keepdim=True), lambda: [torch.randint(9, (100,))], 1),
    ],
    ids=[
        "of all and one",
        "one of many",
        "softmax",
        "sum",
        "matmul",
        "mostly zeros",
        "convolution",
        "one number",
        "of many",
        "integers",
    ],
)
def test_how_many_numbers_an_element_is_made_of(
    reference: Callable[..., Tensor], inputs: Callable[[], list[Tensor]], terms: float
) -> None:
    (found,) = terms_of(inputs(), lambda arguments: [reference(*(x.double() for x in arguments)).double()])
    assert found == pytest.approx(terms, rel=0.2)


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: x.relu(),
        lambda x: functools.reduce(operator.add, x.unbind(1)),
        lambda x: x.amax(1),
        lambda x: x.lgamma(),
    ],
    ids=["none", "the author's own", "the largest", "of one"],
)
def test_who_leaves_no_sum_to_torch_is_held_to_its_order(reference: Callable[[Tensor], Tensor]) -> None:
    assert terms_of([torch.rand(20, 30)], lambda arguments: [reference(arguments[0].double())]) == ()


def test_the_rounding_of_a_loop() -> None:
    half_ulp = 2.0**-24
    assert rounding(torch.float32, 1) == rounding(torch.float32, 36) == half_ulp
    assert rounding(torch.float32, 3600) == 10 * half_ulp
    assert rounding(torch.float32, 1e12) == MOST * half_ulp
    assert rounding(torch.bfloat16, 1e12) == 2.0**-8 and rounding(torch.float16, 1e12) == 2.0**-11
    assert rounding(torch.float64, 3600) == 10 * 2.0**-53


@pytest.mark.parametrize("n", [100, 4096, 1 << 20])
def test_a_loops_error_over_numbers_of_one_sign_is_that_rounding(n: int) -> None:
    rows = torch.full((32, n), 3.0, dtype=torch.float64)
    expected = pytest.approx(3.0 * n * rounding(torch.float32, n) / HALF_ULP, rel=0.02)
    assert loops_error(rows, [-1], 1).abs().tolist() == [expected] * 32
    assert loops_error(rows.T, [0], 1).abs().tolist() == [expected] * 32
    assert loops_error(rows.view(4, 8, n), [2], 1).shape == (32,)


def test_a_loops_error_over_all_numbers_is_that_of_parts() -> None:
    x = torch.ones(1024, 1024, dtype=torch.float64)
    for dims in (None, [], [0, 1]):
        expected = x.numel() * rounding(torch.float32, PARTS) / HALF_ULP
        assert loops_error(x, dims, 1).abs().item() == pytest.approx(expected, rel=0.02)


def test_a_loop_of_doubles_is_off_by_their_own_half_ulps() -> None:
    exam = Exam(problem(layer_norm, lambda: [torch.rand(ROWS, COLUMNS) + 5]), torch.float64, CPU, Tolerance())
    question = exam.first_question()
    (x,) = question.arguments
    single = layer_norm(x.float()).double()
    assert exam.mark_values(question, [single]).status is Status.INCORRECT_VALUE
