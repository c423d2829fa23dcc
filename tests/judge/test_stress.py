"""Stressed questions: hard for a lazy answer, never for an honest one."""

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from kernelyard.core import problem as core_problem
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Tolerance
from kernelyard.core.problem import Problem
from kernelyard.core.verdict import Status
from kernelyard.judge.exam import Exam
from kernelyard.judge.question import Question
from kernelyard.judge.reference import InvalidProblem
from kernelyard.judge.stress import NAMES, ONE_ELEMENT, STRESSES, Unfair, one_changed, stressed
from kernelyard.suites.kernelbench import load_problem

sys.path.insert(0, str(Path(__file__).parent))
from honest import CASES, problem, rows

CPU = torch.device("cpu")


def exam_of(made: Problem, dtype: torch.dtype = torch.float32) -> tuple[Exam, Question]:
    exam = Exam(made, dtype, CPU, Tolerance())
    return exam, exam.first_question()


def questions(made: Problem, dtype: torch.dtype = torch.float32) -> tuple[Exam, dict[str, Question], dict[str, str]]:
    """Every stress that is fair, by name, and why the others are not."""
    exam, first = exam_of(made, dtype)
    asked, skipped = {}, {}
    makers: dict[str, Callable[[], Question]] = {
        stress.name: lambda stress=stress: stressed(exam, stress)  # type: ignore[misc]
        for stress in STRESSES
    }
    for name, make in {**makers, ONE_ELEMENT: lambda: one_changed(exam, first)}.items():
        try:
            asked[name] = make()
        except Unfair as reason:
            skipped[name] = str(reason)
    return exam, asked, skipped


@pytest.mark.parametrize("name", CASES)
def test_an_honest_answer_passes_every_stress(name: str) -> None:
    call, inputs, ways = CASES[name]
    exam, asked, _ = questions(problem(call, inputs))
    assert len(asked) >= 4, "nearly nothing was asked"
    for stress, question in asked.items():
        for way in [call, *ways]:
            mark = exam.mark_values(question, [way(*question.arguments)])
            assert mark.status is Status.PASSED, f"{stress}: {mark.message}"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "matmul", "gelu", "sum", "relu"])
def test_an_honest_half_answer_passes_every_stress(name: str, dtype: torch.dtype) -> None:
    """Computed in fp32 and rounded once, which is what kernels do."""
    call, inputs, ways = CASES[name]
    exam, asked, _ = questions(problem(call, inputs), dtype)
    for stress, question in asked.items():
        for way in ways:
            mark = exam.mark_values(question, [way(*(value.float() for value in question.arguments)).to(dtype)])
            assert mark.status is Status.PASSED, f"{stress}: {mark.message}"


@pytest.mark.parametrize(
    ("name", "lazy", "stress"),
    [
        ("softmax", lambda x: x.exp() / x.exp().sum(-1, True), "scaled_up"),
        ("softmax", lambda x: (x - 4).exp() / (x - 4).exp().sum(-1, True), "scaled_up"),
        ("softmax", lambda x: x.softmax(-1) if x[0, 0].abs() > 20 else x.exp() / x.exp().sum(-1, True), "outliers"),
        ("relu", lambda x: x.relu() if x[0, 0] < 0 else x, "outliers"),
        ("relu", lambda x: x, "signs"),
        ("layer_norm", lambda x: x / x.std(-1, correction=0, keepdim=True), "shifted"),
        ("sum", lambda x: x[..., :-1].sum(-1), "ragged"),
        ("max pool", lambda x: nn.functional.max_pool2d(x[..., 1:], 2, ceil_mode=True), "clustered"),
        ("tanh", lambda x: x.tanh().clamp(min=1e-3), "scaled_down"),
        ("matmul", lambda a, b: (a @ b) * (1 + 2**-22), "integers"),
    ],
)  # fmt: skip
def test_a_lazy_answer_fails(name: str, lazy: Callable[..., Tensor], stress: str) -> None:
    call, inputs, _ = CASES[name]
    exam, asked, skipped = questions(problem(call, inputs))
    question = asked[stress]
    assert exam.mark_values(question, [lazy(*question.arguments)]).status is Status.INCORRECT_VALUE
    assert stress not in skipped


def test_one_changed_element_makes_the_old_answer_wrong() -> None:
    for name in ("softmax", "sum", "matmul", "loss", "conv"):
        call, inputs, _ = CASES[name]
        exam, first = exam_of(problem(call, inputs))
        changed = one_changed(exam, first)
        differ = [(a != b).sum().item() for a, b in zip(first.arguments, changed.arguments, strict=True)]
        assert sorted(differ)[-1] == 1 and sum(differ) == 1, name
        assert exam.mark_values(changed, first.honest).status is Status.INCORRECT_VALUE, name


def test_what_the_inputs_promise_is_kept() -> None:
    labels = torch.tensor([1.0, -1.0]).repeat(32)
    triangle = lambda: torch.tril(torch.rand(64, 64))  # noqa: E731
    made = problem(
        lambda a, s, y: (a @ s) * y, lambda: [triangle(), (lambda m: m + m.T)(torch.rand(64, 64)), labels.clone()]
    )
    _, asked, skipped = questions(made)
    assert set(asked) >= {"scaled_up", "shifted", "clustered", "ragged", "integers", "signs"}, skipped
    for name, question in asked.items():
        a, s, y = question.arguments
        assert torch.equal(a, a.tril()), name
        assert torch.equal(s, s.T), name
        assert torch.equal(y, labels), name


def test_integers_leave_the_numbers_of_a_mean_alone() -> None:
    """A mean may be integral by chance; what divides by n and what multiplies by 1/n then differ."""
    exam, _ = exam_of(problem(lambda x: x.mean(), rows(3, 3)))
    integers = next(stress for stress in STRESSES if stress.exact)
    for _ in range(40):  # the mean of nine integers is integral in one of nine questions
        with pytest.raises(Unfair, match="the answer to small integers is not exact"):
            stressed(exam, integers)


def test_a_softmax_by_its_logarithm_is_honest_however_little_its_inputs_move_it() -> None:
    """One element of each row outweighs the rest: an ulp of an input moves nothing, and x - log is rounded as x is."""

    def one_outweighs() -> list[Tensor]:
        x = torch.rand(32, 300)
        x[:, 0] = 3 + x[:, 1]
        x[:, 1] = x[:, 0] - 10 / 512  # exp(-10) is 0.4 ulps of 1536 to 2048, which is what its logarithm loses
        return [x]

    exam, asked, _ = questions(problem(lambda x: x.softmax(-1), one_outweighs))
    (x,) = asked["scaled_up"].arguments
    mark = exam.mark_values(asked["scaled_up"], [(x - x.logsumexp(-1, True)).exp()])
    assert mark.status is Status.PASSED, mark.message


def test_indices_are_not_asked_for_ties() -> None:
    _, asked, skipped = questions(problem(lambda x: x.argmax(-1), rows(8, 100)))
    assert {"clustered", "ragged", "integers"} <= set(skipped) and "scaled_up" in asked


def test_an_ill_conditioned_stress_is_skipped_by_name() -> None:
    """exp(x) moves by its own size where an ulp of x is 1: nobody can be held to that."""
    _, asked, skipped = questions(problem(lambda x: torch.sin(x * 1e5), rows(8, 100)))
    assert "rounding alone moves the answer" in skipped["scaled_up"]
    assert "scaled_up" not in asked


def test_a_non_finite_answer_is_no_question() -> None:
    _, _, skipped = questions(problem(lambda x: x.sqrt(), lambda: [torch.rand(8, 100)]))
    assert skipped["signs"] == "the reference's answer is not finite"


def test_a_problem_declines(tmp_path: Path) -> None:
    exam, first = exam_of(problem(lambda x: x.relu(), rows(4, 50), no_stress=frozenset(NAMES)))
    with pytest.raises(Unfair, match="declined"):
        one_changed(exam, first)
    for stress in STRESSES:
        with pytest.raises(Unfair, match="declined"):
            stressed(exam, stress)

    text = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    path = tmp_path / "problem.py"
    path.write_text(text + "NO_STRESS = ['ragged']\nALLOW_NONFINITE = ['output[1]']\nIN_PLACE = True\n")
    made = load_problem(path)
    assert made.in_place
    assert made.no_stress == {"ragged"}
    assert made.may_be_nonfinite("output[1]") and not made.may_be_nonfinite("output[0]")
    for wrong, said in (
        ("NO_STRESS = ['raged']", "did you mean 'ragged'"),
        ("NO_STRESS = 'ragged'", "expected True, or names"),
        ("ALLOW_NONFINITE = 1", "expected True, False or names"),
        ("IN_PLACE = 1", "expected True or False"),
    ):
        path.write_text(text + wrong)
        with pytest.raises(UsageError, match=said):
            load_problem(path)


class Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(16)
        self.linear = nn.Linear(16, 8)
        self.register_buffer("mask", torch.ones(16, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x) * self.mask)


def affine(**declared: object) -> Problem:
    return replace(problem(torch.relu, rows(32, 16), **declared), model_class=Affine)


def test_constant_weights_are_redrawn_and_come_back() -> None:
    exam, first = exam_of(affine())
    assert exam.constants == {"norm.weight": 1, "norm.bias": 0, "norm.running_mean": 0, "norm.running_var": 1}
    state = exam.model.state_dict()
    assert bool((state["norm.running_var"] > 0.7).all()) and state["norm.weight"].std() > 0.05
    drawn = exam.problem.make_model([], exam.weight_seed, torch.float32, CPU).state_dict()
    assert torch.equal(state["linear.weight"], drawn["linear.weight"]), "what is random stays as the seed has it"
    linear = nn.functional.linear(first.arguments[0], state["linear.weight"], state["linear.bias"])
    assert exam.mark_values(first, [linear]).status is Status.INCORRECT_VALUE, "a batch norm was left out"
    exam.restore_weights("for the test")
    assert all(torch.equal(value, drawn[name]) for name, value in exam.model.state_dict().items())
    assert bool((exam.exact.state_dict()["norm.weight"] == 1).all())


def test_a_problem_declines_other_weights() -> None:
    exam, _ = exam_of(affine(no_stress=frozenset({"weights"})))
    assert not exam.constants and exam.why_constant == "declined by the problem"


def test_non_finite_answers_have_to_be_declared() -> None:
    call = lambda x: torch.where(x > 0, float("inf"), x)  # noqa: E731
    exam, first = exam_of(problem(call, rows(4, 50), allow_nonfinite=True))
    assert exam.mark_values(first, [call(first.arguments[0])]).status is Status.PASSED
    for wrong in (float("-inf"), float("nan"), 1e30):
        spoilt = torch.where(first.arguments[0] > 0, wrong, first.arguments[0])
        assert exam.mark_values(first, [spoilt]).status is Status.INCORRECT_VALUE


def test_the_weights_seed_says_nothing_about_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seed is drawn by itself from the system's source; a worker is told the one of the weights."""
    drawn: list[int] = []
    for place, name in ((torch, "manual_seed"), (core_problem, "seed_generators")):
        real = getattr(place, name)
        monkeypatch.setattr(place, name, lambda seed, real=real: (drawn.append(seed), real(seed))[1])
    exam = Exam(problem(torch.relu, rows(4, 8)), torch.float32, CPU, Tolerance())
    torch.manual_seed(exam.weight_seed)
    one = exam.arguments()
    torch.manual_seed(exam.weight_seed)
    two = exam.arguments()
    assert not torch.equal(one[0], two[0]), "the inputs follow from the seed of the weights"
    assert len(set(drawn)) == 3 and drawn.count(exam.weight_seed) == 3


class Heads(NamedTuple):
    first: Tensor
    second: Tensor


class Stateful(nn.Module):
    """A first state that is no buffer, and another that is made within the call."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNN(16, 8)
        self.state = torch.full((1, 8), 0.5)
        self.more = {"heads": Heads(torch.randn(8, 4), torch.randn(8, 4))}

    def forward(self, x: Tensor) -> Tensor:
        answer = self.cell(x, self.state + torch.zeros(1, 8))[0]
        return torch.cat([answer @ head for head in self.more["heads"]], 1)


def test_states_that_are_no_weights_are_in_float64_too() -> None:
    exam, first = exam_of(replace(problem(torch.relu, rows(32, 16)), model_class=Stateful))
    assert first.reference[0].dtype is torch.float64
    assert exam.mark_values(first, first.honest).status is Status.PASSED
    assert torch.get_default_dtype() is torch.float32


class KeepsALambda(nn.Module):
    """As minGPT's block does."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.ModuleDict({"up": nn.Linear(16, 32), "down": nn.Linear(32, 16)})
        self.layers = layers
        self.norm = nn.LayerNorm(16)
        self.feed = lambda x: layers.down(layers.up(x).relu())

    def forward(self, x: Tensor) -> Tensor:
        return self.feed(self.norm(x))  # type: ignore[no-any-return]


def test_a_model_whose_lambda_encloses_its_layers_is_converted_with_them() -> None:
    exam, first = exam_of(replace(problem(torch.relu, rows(32, 16)), model_class=KeepsALambda))
    assert exam.constants, "the norm's weights are redrawn, and the copy has them"
    assert first.reference[0].dtype is torch.float64
    assert torch.allclose(first.reference[0].float(), first.honest[0], atol=1e-5)


class CannotBeCopied(nn.Module):
    """Of weights what is no leaf, and a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 8)
        self.norm = nn.LayerNorm(8)
        self.twice = 2 * self.linear.weight
        self.lock = threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            return self.norm(x @ self.twice.T)  # type: ignore[no-any-return]


def test_a_model_that_cannot_be_copied_is_made_anew() -> None:
    exam, first = exam_of(replace(problem(torch.relu, rows(32, 16)), model_class=CannotBeCopied))
    assert set(exam.constants) == {"norm.weight", "norm.bias"}, "redrawn, and the other model has them"
    assert first.reference[0].dtype is torch.float64
    assert torch.allclose(first.reference[0].float(), first.honest[0], atol=1e-5)


def test_an_answer_that_memory_holds_before_it_is_written_tells_nothing() -> None:
    exam, first = exam_of(problem(lambda x: x.abs() >= 0, rows(32, 16)))
    assert exam.degenerate(exam.question(), first.honest) == "memory that nobody wrote to passes"


@pytest.mark.parametrize("call", [lambda x: x > 0.3, lambda x: x.argmax(-1)], ids=["truth values", "integers"])
def test_answers_that_are_no_fractions_are_held_against_all_questions(call: Callable[[Tensor], Tensor]) -> None:
    exam, first = exam_of(problem(call, rows(32, 16)))
    assert first.reference[0].dtype is torch.int64
    asked = [stressed(exam, stress) for stress in STRESSES if stress.name in ("signs", "scaled_up", "shifted")]
    assert all(exam.mark_values(question, question.honest).status is Status.PASSED for question in asked)
    wrong = [(~answer if answer.dtype is torch.bool else answer + 1) for answer in first.honest]
    assert exam.mark_values(first, wrong).status is Status.INCORRECT_VALUE


def test_complex_answers_are_no_problem_of_ours() -> None:
    """Held against float64, their imaginary parts would count for nothing."""
    with pytest.raises(InvalidProblem, match="complex numbers as output"):
        exam_of(problem(torch.fft.fft, rows(32, 16)))


def test_a_reference_that_refuses_shaken_inputs_is_not_asked_so() -> None:
    """What is 1 and moves up by an ulp is no probability; what is moved element by element is not symmetric."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy(x.sigmoid(), y, reduction="none")

    def squared(x: Tensor) -> Tensor:
        if not torch.equal(x, x.mT):
            raise ValueError("expected a symmetric matrix")
        return x @ x

    labels = lambda: torch.randint(2, (16, 100)).float()  # noqa: E731
    _, asked, skipped = questions(problem(loss, lambda: [torch.randn(16, 100), labels()]))
    assert "where inputs move by an ulp: RuntimeError: all elements" in skipped["scaled_up"] and not asked
    _, asked, skipped = questions(problem(squared, lambda: [(lambda m: m + m.T)(torch.randn(32, 32))]))
    assert "by an ulp: ValueError: expected a symmetric" in skipped["scaled_up"] and set(asked) <= {"integers"}


def test_an_answer_whose_size_hangs_on_rounding_is_not_asked_for() -> None:
    def twins() -> list[Tensor]:
        x = torch.randn(100, 100)
        return [x, x.clone()]

    _, _, skipped = questions(problem(lambda x, y: x[x >= y], twins))
    assert "rounding alone decides how large the answer is" in skipped.values()


@pytest.mark.parametrize("shape", [(32, 48), (512, 512)])
def test_one_number_that_cancels_is_not_refused_by_luck(shape: tuple[int, int]) -> None:
    """A mean of normal numbers, added up in another order: 1 to 1.5 % of calls were more than eight times as far off as
    the honest one, which was lucky."""
    exam, _ = exam_of(problem(lambda x: x.mean(), lambda: [torch.randn(*shape)]))
    halves = 0
    for _ in range(150):
        question = exam.question(exam.arguments())
        (x,) = question.arguments
        assert exam.mark_values(question, [x.sum(0).sum() / x.numel()]).status is Status.PASSED
        halves += exam.mark_values(question, [x.bfloat16().float().mean()]).status is Status.PASSED
    assert halves <= 15, "half precision, whose one number may be right by luck"


def test_a_reference_that_refuses_moved_inputs_keeps_its_own_error_for_ruler() -> None:
    def loss(p: Tensor) -> Tensor:
        if p.max() > 1:
            raise ValueError("no probability")
        return p.log().mean()

    exam, question = exam_of(problem(loss, lambda: [torch.ones(64)]))
    assert exam.mark_values(question, [torch.tensor(0.5)]).status is Status.INCORRECT_VALUE
    assert exam.mark_values(question, [torch.tensor(0.0)]).status is Status.PASSED
