"""The checks before the clock, on solutions that run right here in place of a worker."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelyard.core.operator import Tolerance
from kernelyard.core.policy import Policy
from kernelyard.core.problem import Problem
from kernelyard.core.verdict import Status, StressRecord
from kernelyard.judge import checking
from kernelyard.judge.checking import (
    LATE,
    LATE_CALLS,
    UNORDERED,
    call_late,
    check,
    check_held,
    check_order,
    check_pair,
    check_stresses,
    settle_weights,
)
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import End, Findings
from kernelyard.judge.plan import Plan
from kernelyard.judge.stress import NAMES, STRESSES
from kernelyard.sandbox.form import forms_of
from kernelyard.sandbox.handing import describe as describe_output
from kernelyard.sandbox.lending import Lender
from kernelyard.sandbox.returned import Fetched, Kept, Ran
from kernelyard.sandbox.wire import Manner, named_leaves

sys.path.insert(0, str(Path(__file__).parent))
from honest import CASES, online_softmax, problem, rows

CPU = torch.device("cpu")
SOFTMAX = problem(*CASES["softmax"][:2])


class Here:
    """A session without a worker: what a candidate returns crosses as it would."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call, self.device, self.lender = call, CPU, Lender(CPU)

    def run(self, sets: Sequence[Sequence[Any]]) -> None:
        self.staged = [[v.clone() if isinstance(v, Tensor) else v for v in arguments] for arguments in sets]
        self.returned = [self.call(*arguments) for arguments in self.staged]

    def hold(self, index: int | None) -> None:
        self.held = None if index is None else self.returned[index]

    def inputs_are(self, index: int, pristine: Sequence[Tensor], same: Callable[..., bool]) -> bool:
        return all(map(same, [v for v in self.staged[index] if isinstance(v, Tensor)], pristine))

    def fetch(self, index: int, expected: Sequence[Tensor], what: str = "outputs") -> Fetched:
        value = self.held if what == "held" else self.returned[index]
        leaves, forms = named_leaves(value), forms_of(value, self.staged[index])
        described = tuple(describe_output(name, v, form) for (name, v), form in zip(leaves, forms, strict=True))
        plain = [v for (_, v), output in zip(leaves, described, strict=True) if output.kind == "Tensor"]
        return Fetched(described, tuple(v.clone(memory_format=torch.contiguous_format) for v in plain))


def examined(call: Callable[..., Any], made: Problem = SOFTMAX, plan: Plan = Plan(), weights: str = "none") -> Findings:
    exam = Exam(made, torch.float32, CPU, Tolerance())
    found = Findings(weights=weights)
    candidate: Any = Here(call)
    first = settle_weights(exam, exam.first_question(), found)
    answered = check(exam, candidate, first, found)
    check_pair(exam, candidate, first, answered, plan, found)
    check_stresses(exam, candidate, plan, found, first.bytes)
    check_held(candidate, found)
    return found


def refused(call: Callable[..., Any], made: Problem = SOFTMAX) -> End:
    with pytest.raises(End) as raised:
        examined(call, made)
    return raised.value


def test_an_honest_solution_is_asked_everything_that_is_fair() -> None:
    found = examined(online_softmax)
    outcomes = {stress.name: stress.outcome for stress in found.stresses}
    skipped = {name for name, outcome in outcomes.items() if outcome == "skipped"}
    assert skipped == {"integers", "weights"}
    assert set(outcomes) == {*NAMES, "two_alive"} and set(outcomes.values()) == {"passed", "skipped"}
    assert found.trials == 1, "a stressed question is no trial"


CALLS = 3
PLAN = Plan(calls=2 * CALLS)


class OnAStream(Here):
    """Asked in the middle of other work, it joins its stream in so many calls; on its own it is right."""

    def __init__(self, call: Callable[..., Any], *, joined: int) -> None:
        super().__init__(call)
        self.device = torch.device("cuda")  # by name alone
        self.joined, self.late_calls = joined, 0

    def lend(self, like: Sequence[Tensor], calls: int) -> None:
        self.lent = calls

    def run(self, sets: Sequence[Sequence[Any]], *, manner: Manner = Manner.COLD, keep: Sequence[int] = ()) -> Any:
        late = manner is Manner.LATE
        self.late_calls += late
        assert not late or (self.lent == len(sets) <= CALLS and [*keep] == [self.lent - 1])
        unwritten = len(sets[self.joined :]) * late
        written = sets[: len(sets) - unwritten]
        super().run([*written, *([torch.zeros_like(*one)] for one in sets[len(written) :])])
        fetched = [self.fetch(index, ()) for index in keep]
        kept = tuple(
            Kept(i, one.outputs, one.tensors[0].reshape(-1).view(torch.uint8), True)  # type: ignore[index]
            for i, one in zip(keep, fetched, strict=True)
        )
        return Ran(((1.0, 1.0),), 1.0, kept)


def test_a_stream_of_its_own_that_nobody_joins() -> None:
    exam = Exam(SOFTMAX, torch.float32, CPU, Tolerance())
    first = exam.first_question()
    unjoined: Any = OnAStream(lambda x: x.softmax(-1), joined=0)
    check(exam, unjoined, first, Findings())
    with pytest.raises(End) as raised:
        check_order(exam, unjoined, PLAN, Findings(), PLAN.round_bytes // CALLS)
    assert raised.value.status is Status.INCORRECT_VALUE
    assert raised.value.message.startswith(UNORDERED) and "elements differ" in raised.value.message


def test_a_stream_of_its_own_that_is_joined_after_a_pause() -> None:
    """As before every request there is one: then of several calls the first is right."""
    exam = Exam(SOFTMAX, torch.float32, CPU, Tolerance())
    exam.first_question()
    after_a_pause: Any = OnAStream(lambda x: x.softmax(-1), joined=1)
    with pytest.raises(End) as raised:
        for _ in range(40):
            call_late(exam, after_a_pause, CALLS)
    assert raised.value.status is Status.INCORRECT_VALUE


def test_a_stream_of_its_own_that_is_joined_passes() -> None:
    exam = Exam(SOFTMAX, torch.float32, CPU, Tolerance())
    exam.first_question()
    joined: Any = OnAStream(lambda x: x.softmax(-1), joined=CALLS)
    found = Findings()
    check_order(exam, joined, PLAN, found, PLAN.round_bytes // CALLS)
    assert joined.late_calls == LATE_CALLS and found.stresses == [StressRecord(name=LATE, outcome="passed")]
    check_order(exam, joined, PLAN, found, PLAN.round_bytes + 1)
    joined.device = CPU
    check_order(exam, joined, PLAN, found, 1)
    assert joined.late_calls == LATE_CALLS
    assert [stress.reason for stress in found.stresses[1:]] == ["the problem is large", "a CPU has no streams"]


def test_a_stress_that_fails_is_named() -> None:
    made = problem(*CASES["softmax"][:2], no_stress=frozenset({"outliers"}))
    end = refused(lambda x: x.exp() / x.exp().sum(-1, True), made)
    assert end.status is Status.INCORRECT_VALUE and end.message.startswith("under the stress 'scaled_up'")


def test_one_buffer_for_all_answers() -> None:
    buffer = torch.empty(16, 1024)
    end = refused(lambda x: buffer.copy_(x.softmax(-1)))
    assert end.status is Status.INCORRECT_VALUE and end.message.startswith("under the stress 'two_alive'")


def test_buffers_in_turn_for_all_answers() -> None:
    """Five are enough for two answers alive at once, and are written again before the checks are over."""
    buffers = [torch.empty(16, 1024) for _ in range(5)]

    def answered(x: Tensor) -> Tensor:
        buffers.append(buffers.pop(0))
        return buffers[-1].copy_(x.softmax(-1))

    end = refused(answered)
    assert end.status is Status.INCORRECT_VALUE and "still held changed" in end.message


def test_a_cache_that_knows_its_input_by_a_sample() -> None:
    cache: dict[tuple[float, ...], Tensor] = {}

    def sampled(x: Tensor) -> Tensor:
        key = (x[0, 0].item(), x[-1, -1].item(), x.shape[0])
        return cache.setdefault(key, x.softmax(-1)).clone()

    end = refused(sampled)
    assert end.message.startswith("under the stress 'one_element'")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda y: y.t().contiguous().t(), "strides (1, 16), expected (1024, 1)"),
        (lambda y: y[:1].expand(16, 1024), "strides (0, 1), expected (1024, 1)"),
        (lambda y: y.to_sparse(), "a Tensor of layout torch.sparse_coo"),
        (lambda y: torch.nn.Parameter(y), "a Parameter"),
        (lambda y: y.as_subclass(type("Tensor", (Tensor,), {})), "a test_checking.Tensor"),
        (lambda y: y.repeat_interleave(2, 1)[:, ::2], "strides (2048, 2)"),
    ],
    ids=["transposed", "broadcast", "sparse", "subclass", "of the same name", "every other"],
)
def test_the_contract_of_what_comes_back(spoil: Callable[[Tensor], Tensor], said: str) -> None:
    end = refused(lambda x: spoil(x.softmax(-1)))
    assert end.status is Status.REJECTED and said in end.message


def test_an_emptied_storage() -> None:
    def emptied(x: Tensor) -> Tensor:
        y = x.softmax(-1)
        y.untyped_storage().resize_(8)
        return y

    exam = Exam(SOFTMAX, torch.float32, CPU, Tolerance())
    question = exam.question()
    mark = exam.mark(question, Fetched((describe_output("output", emptied(question.arguments[0])),), question.honest))
    assert mark.status is Status.REJECTED and "a storage of 8 bytes, expected 65536" in mark.message


def test_the_strides_of_the_honest_answer_are_right_too() -> None:
    made = problem(lambda x: x.t(), rows(16, 100))
    assert examined(lambda x: x.t(), made).trials == 1
    assert examined(lambda x: x.t().contiguous(), made).trials == 1


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda y, x: (y, y, x.clone()), "output[1]: it lies in the memory of output[0], expected memory of its own"),
        (lambda y, x: (y, y + 0, x), "output[2]: it lies in the memory of input[0], expected memory of its own"),
        (lambda y, x: [y, y + 0, x + 0], "output[0]: returned in list of 3, expected tuple of 3"),
        (lambda y, x: (y, y + 0, x + 0, []), "output[0]: returned in tuple of 4, expected tuple of 3"),
        (lambda y, x: (y, y + 0, x + 0), ""),
    ],
)
def test_outputs_hang_together_as_the_references_do(answer: Callable[..., Any], complaint: str) -> None:
    copies = problem(lambda x: (x.softmax(-1), x.softmax(-1).clone(), x.clone()), lambda: [torch.randn(16, 100)])
    if complaint:
        end = refused(lambda x: answer(x.softmax(-1), x), copies)
        assert end.status is Status.REJECTED and end.message == complaint
    else:
        examined(lambda x: answer(x.softmax(-1), x), copies)


def test_what_the_reference_shares_may_be_shared_or_not() -> None:
    shares = problem(lambda x: (x, x.view(-1)), lambda: [torch.randn(16, 100)])
    for answer in (lambda x: (x, x.view(-1)), lambda x: (x.clone(), x.view(-1)), lambda x: (x + 0, (x + 0).view(-1))):
        examined(answer, shares)
    in_place = problem(lambda x: x.relu(), lambda: [torch.randn(16, 100)], in_place=True)
    examined(lambda x: x.relu_(), in_place)


def test_what_the_reference_shares_with_one_is_shared_with_no_other() -> None:
    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        return (copy := x.clone()), copy

    end = refused(lambda x: (x.clone(), x), problem(twice, lambda: [torch.randn(16, 100)]))
    assert end.message == "output[1]: it lies in the memory of input[0], expected memory of its own"
    first_and_last = problem(lambda x: (y := x.exp(), x.exp(), y), lambda: [torch.randn(16, 100)])
    end = refused(lambda x: (x.exp(), y := x.exp(), y), first_and_last)
    assert end.message == "output[2]: it lies in the memory of output[1], expected memory of its own"


@pytest.mark.parametrize("relu", [torch.relu, torch.relu_])
def test_in_place_two_outputs_are_in_two_memories_still(relu: Callable[[Tensor], Tensor]) -> None:
    two = problem(lambda x: (x.relu(), x.relu()), lambda: [torch.randn(16, 100)], in_place=True)
    examined(lambda x: (x.relu(), x.relu_()), two)
    end = refused(lambda x: (y := relu(x), y), two)
    assert end.message == "output[1]: it lies in the memory of output[0], expected memory of its own"


def test_what_the_reference_shares_of_some_inputs_is_held_against_those_alone() -> None:
    """Two questions are made before the first is looked at, and of the second the reference returns a copy."""

    def shares(x: Tensor) -> Tensor:
        return x.clone() if x.amax() > 1 else x

    made = problem(shares, lambda: [torch.rand(16, 100) - 0.5])
    exam = Exam(made, torch.float32, CPU, Tolerance())
    first = exam.first_question()
    exam.question([2 + first.arguments[0]])
    candidate: Any = Here(shares)
    candidate.run([first.arguments])
    assert exam.mark(first, candidate.fetch(0, first.honest)).status is Status.PASSED


def test_inputs_are_looked_at_after_every_call() -> None:
    """In place only where the input is large, which the problem's own never is."""

    def in_place(x: Tensor) -> Tensor:
        return torch.softmax(x, -1, out=x) if x.abs().max() > 100 else x.softmax(-1)  # type: ignore[call-overload]

    assert refused(in_place).status is Status.INPUT_MUTATED
    assert refused(lambda x: (x.softmax(-1), x.mul_(1.0), x.masked_fill_(x == 0, -0.0))[0], problem(
        lambda x: x.softmax(-1), lambda: [torch.randn(16, 100).relu()]
    )).status is Status.INPUT_MUTATED  # fmt: skip


def test_a_large_problem_is_asked_two_stresses_by_chance() -> None:
    found = examined(online_softmax, plan=Plan(round_bytes=1000))
    assert len([s for s in found.stresses if s.outcome == "passed" and s.name in NAMES]) == 2
    (skipped,) = (s for s in found.stresses if s.name == "one_element")
    assert skipped.reason == "too large to hold two questions"


def test_of_a_large_problem_an_answer_is_held_while_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Plan(round_bytes=1000)
    buffer = torch.empty(16, 1024)
    with pytest.raises(End, match="the next one lies in its memory") as raised:
        examined(lambda x: buffer.copy_(x.softmax(-1)), plan=large)
    assert raised.value.status is Status.INCORRECT_VALUE
    assert StressRecord(name="two_alive", outcome="passed") in examined(online_softmax, plan=large).stresses

    asked: list[int] = []
    monkeypatch.setattr(checking, "leaves_some", lambda size, device: asked.append(size) or False)
    exam = Exam(SOFTMAX, torch.float32, CPU, Tolerance())
    first = exam.first_question()
    exam.device = torch.device("cuda")  # by name alone
    monkeypatch.setattr(checking, "make_room", lambda *_, **__: None)
    found, candidate = Findings(), Here(lambda x: buffer.copy_(x.softmax(-1)))
    check_pair(exam, candidate, first, [], large, found)  # type: ignore[arg-type]
    assert found.stresses[-1].reason == "too large to hold two answers" and asked == [
        first.bytes + first.honest[0].nbytes
    ]


def test_the_judges_time_is_bounded() -> None:
    found = examined(online_softmax, plan=Plan(stress_seconds=0.0))
    late = [s for s in found.stresses if s.reason == "the judge's time is spent"]
    assert len(late) == len(STRESSES) - 1


@pytest.mark.parametrize("weights", ["state_dict", "seed"])
def test_redrawn_weights_are_asked_of_those_who_got_them(weights: str) -> None:
    from test_stress import affine

    made = affine()
    model: list[torch.nn.Module] = []
    original = Problem.make_model

    def kept(self: Problem, *arguments: Any) -> torch.nn.Module:
        model.append(original(self, *arguments))
        return model[-1]

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(Problem, "make_model", kept)
        found = examined(lambda x: model[-1](x), made, weights=weights)
        record = next(stress for stress in found.stresses if stress.name == "weights")
        assert record.outcome == ("passed" if weights == "state_dict" else "skipped")
        assert [flag.name for flag in found.flags] == ([] if weights == "state_dict" else ["weights_not_taken"])
        if weights == "seed":
            strict = Findings(weights=weights, policy=Policy.STRICT)
            exam = Exam(made, torch.float32, CPU, Tolerance())
            with pytest.raises(End, match="weights_not_taken: its state_dict lacks norm"):
                settle_weights(exam, exam.first_question(), strict)
        if weights == "state_dict":
            with pytest.raises(End, match="were redrawn, and loaded with load_state_dict"):
                examined(lambda x: model[-1].linear(x), made, weights=weights)  # type: ignore[operator]
