"""Whether a problem can tell a right answer from a wrong one: mutants of its reference must fail, honest answers pass.

A mutant is a wrong way to answer that costs nothing to write: zeros, a constant, the first answer again, the input,
half the precision, a weight or an input left out. Each is held against the questions that a solution would be asked,
the stressed ones included. One that passes all of them is a hole that a solution can use.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from kernelyard.core.environment import Environment
from kernelyard.core.errors import first_line
from kernelyard.core.operator import Tolerance
from kernelyard.core.problem import Problem, each_tensor
from kernelyard.core.verdict import Record, Status
from kernelyard.core.workload import dtype_name
from kernelyard.judge.checking import within_memory
from kernelyard.judge.compare import CHUNK
from kernelyard.judge.exam import Exam
from kernelyard.judge.parts import close, largest, part, rows_of
from kernelyard.judge.question import Question
from kernelyard.judge.reference import InvalidProblem
from kernelyard.judge.size import NO_ROOM, TOO_LARGE, lacks_memory, too_large
from kernelyard.judge.stress import ONE_ELEMENT, STRESSES, Unfair, one_changed, stressed
from kernelyard.judge.weights import fill_constants
from kernelyard.sandbox.wire import named_leaves

Answer = Callable[[Question], Sequence[Tensor]]

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# torch's own convolutions round their inputs to TF32 on a GPU, and TF32 has the mantissa of fp16.
ROUGH = 2.0**-15
# Eight times an error of an eighth is the answer's own size.
HOPELESS = 0.125
# A size is known from this many elements; the squares of 2**31 would take 16 GB.
SAMPLE = 1 << 22
HONEST_FAILS = "the honest answer"
"""How a reason begins that an honest answer gave, and no mutant."""
NO_TIME = "no time left"
"""Why a stress was not asked, like `NO_ROOM`: what survives all others is undecided then."""


class MutantRecord(Record):
    """What became of one mutant."""

    name: str
    outcome: Literal["killed", "survived", "not_applicable"]
    detail: str = ""
    """The question that killed it, or why it does not apply."""


class Admission(Record):
    """Whether a problem is fit to judge by."""

    problem: str
    problem_sha256: str
    """Empty where there is no problem to hash: its process ended, or its file is none."""
    dtype: str
    environment: Environment
    """Where and when; of many problems in one run, when that began."""
    status: Literal["valid", "invalid_problem", "skipped", "not_loaded"]
    """`not_loaded`: the file cannot be read, is not in the format or fails to load; it says nothing of a problem."""
    reason: str = ""
    mutants: tuple[MutantRecord, ...] = ()
    questions: tuple[str, ...] = ()
    """Those that were asked."""
    skipped: dict[str, str] = Field(default_factory=dict)
    """Stresses that were not fair, with the reason."""
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Wall time; None where nobody took it."""

    @model_validator(mode="after")
    def _honest(self) -> "Admission":
        if (self.status == "valid") == bool(self.reason):
            raise ValueError("a problem that is not valid has a reason, and no other has")
        if self.status == "valid" and (self.named("survived") or not self.named("killed")):
            raise ValueError("no problem is valid but by wrong answers that fail, all that apply")
        if self.is_decided and not self.problem_sha256:
            raise ValueError("what was decided is of a text, and that has a hash")
        return self

    @property
    def is_decided(self) -> bool:
        """Whether another look would say the same."""
        return self.status in ("valid", "invalid_problem")

    def named(self, outcome: str) -> tuple[str, ...]:
        """The mutants of that outcome."""
        return tuple(mutant.name for mutant in self.mutants if mutant.outcome == outcome)

    @property
    def kill_rate(self) -> float | None:
        """Killed over those that apply; None where none does."""
        killed, survived = len(self.named("killed")), len(self.named("survived"))
        return killed / (killed + survived) if killed + survived else None


class _NotApplicable(Exception):
    """A mutant that means nothing for this problem; says why."""


@dataclass
class _Mutant:
    name: str
    answer: Answer | None
    """None once its fate is known: what it answers with may be as large as an answer."""
    may_be_equal: bool = True
    """Equal to the reference on every question, it is no mutant: the reference is the identity, or has no rounding."""
    altered: Callable[[Question], list[Any]] | None = None
    """The inputs that it takes for the question's, where that is all that it does wrong."""
    killed_by: str = ""
    why_not: str = ""
    equal: bool = True

    def ask(self, exam: Exam, name: str, question: Question) -> None:
        """One more question, if it is still alive."""
        if self.answer is None:
            return
        try:
            tensors = self.answer(question)
        except _NotApplicable as reason:
            self.why_not = str(reason)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self.why_not = f"cannot be computed: {first_line(error)}"
        else:
            if exam.mark_values(question, tensors).status is not Status.PASSED:
                self.killed_by = name
            self.equal = self.equal and self._equals(exam, question, tensors)
        if self.killed_by or self.why_not:
            self.answer = None

    def _equals(self, exam: Exam, question: Question, tensors: Sequence[Tensor]) -> bool:
        """To the bit; or in float64, for some convolutions add up in another order each time."""
        if all(map(torch.equal, tensors, question.honest)):
            return True
        return self.altered is not None and _is_its_answer(exam, question, self.altered(question))

    def record(self) -> MutantRecord:
        if self.killed_by:
            return MutantRecord(name=self.name, outcome="killed", detail=self.killed_by)
        why_not = self.why_not or ("equals the reference" if self.equal and self.may_be_equal else "")
        outcome = "not_applicable" if why_not else "survived"
        return MutantRecord(name=self.name, outcome=outcome, detail=why_not)  # type: ignore[arg-type]


@dataclass
class _Course:
    """One problem's questions, mutants and honest answers, and what came of them so far."""

    exam: Exam
    deadline: float
    mutants: list[_Mutant] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def take(self) -> None:
        """The problem's own questions, then every stress that is fair. Raises InvalidProblem where an honest one fails.

        One is alive at a time: of 6 GB of inputs and as much of answers it takes 26 GB, and 39 with its ruler. Of the
        first what is still asked for stays beside it: the inputs until one element of them is changed, and the answer
        until it has failed as one to other inputs.
        """
        first = self.exam.first_question()
        self.mutants = list(_mutants(self.exam, first))
        self.ask("first", first)
        unchanged = [replace(first, reference=())]
        del first
        self.ask("second", self.exam.question())
        self._ask_if_fair(ONE_ELEMENT, lambda: one_changed(self.exam, unchanged.pop()))
        for stress in STRESSES:
            self._ask_if_fair(stress.name, partial(stressed, self.exam, stress))

    def _ask_if_fair(self, name: str, make: Callable[[], Question]) -> None:
        if time.monotonic() > self.deadline:
            self.skipped[name] = NO_TIME
            return
        try:
            question = within_memory(make)
        except Unfair as reason:
            self.skipped[name] = NO_ROOM if lacks_memory(reason) else str(reason)
        else:
            self.ask(name, question)

    def ask(self, name: str, question: Question) -> None:
        """Every mutant that is still alive. Raises InvalidProblem where an honest answer fails."""
        self.asked.append(name)
        error = max(map(_relative_error, question.honest, question.reference))
        if error > HOPELESS:
            raise InvalidProblem(f"{HONEST_FAILS} is itself off by {100 * error:.0f} %: nothing can be told by it")
        for kind, answered in _honest(self.exam, question):
            if (mark := self.exam.mark_values(question, answered())).status is not Status.PASSED:
                raise InvalidProblem(f"{HONEST_FAILS} {kind} fails the question {name!r}: {mark.message}")
        for mutant in self.mutants:
            mutant.ask(self.exam, name, question)


def admit(
    problem: Problem,
    *,
    environment: Environment,
    dtype: torch.dtype,
    memory_bytes: int,
    seconds: float = 60.0,
) -> Admission:
    """Hold the problem's mutants and honest answers against its own questions; the problem runs right here.

    A problem that takes more than `memory_bytes` or `seconds` is skipped; the time is looked at between questions.
    `environment` names the device.
    """
    begin, device = time.monotonic(), torch.device(environment.device)

    def made(status: Literal["valid", "invalid_problem", "skipped"], reason: str, course: _Course | None) -> Admission:
        return Admission(
            problem=problem.source.name,
            problem_sha256=problem.source.sha256,
            dtype=dtype_name(dtype),
            environment=environment,
            status=status,
            reason=reason,
            mutants=tuple(mutant.record() for mutant in course.mutants) if course else (),
            questions=tuple(course.asked) if course else (),
            skipped=course.skipped if course else {},
            seconds=time.monotonic() - begin,
        )

    if reason := too_large(problem, dtype, device, memory_bytes):
        return made("skipped", reason, None)
    no_room = f"{TOO_LARGE}: over {memory_bytes / 1e9:.0f} GB to check it"
    course = None
    try:
        course = _Course(Exam(problem, dtype, device, Tolerance(), spill=False), begin + seconds)
        with torch.no_grad():
            course.take()
    except InvalidProblem as error:
        if lacks_memory(error):
            return made("skipped", no_room, course)
        return made("invalid_problem", str(error), course)
    except (torch.OutOfMemoryError, MemoryError):
        return made("skipped", no_room, course)
    survived = ", ".join(mutant.name for mutant in course.mutants if mutant.record().outcome == "survived")
    if survived and NO_TIME in course.skipped.values():
        return made("skipped", f"{NO_TIME} to decide on {survived}", course)
    if survived and NO_ROOM in course.skipped.values():
        return made("skipped", f"{no_room}; undecided: {survived}", course)
    if survived:
        return made("invalid_problem", f"cannot tell from the reference: {survived}", course)
    return made("valid", "", course)


def _honest(exam: Exam, question: Question) -> Iterator[tuple[str, Callable[[], Sequence[Tensor]]]]:
    """The ways to be right: again, from float64, and by halves of the batch where rows are independent."""
    yield "computed again", lambda: _answered(exam.model, question.arguments)
    rounded = zip(question.reference, question.honest, strict=True)
    yield "rounded from float64", lambda: [reference.to(h.device, h.dtype) for reference, h in rounded]
    if rows := rows_of(question.arguments, question.honest):
        halves = ((0, rows // 2), (rows // 2, rows))
        try:
            independent = all(_stands_alone(exam, question, rows, *half) for half in halves)
        except torch.OutOfMemoryError:
            raise
        except Exception:
            # A model that knows its batch size: of Mamba's blocks einsum says so with a ValueError.
            return
        if independent:
            inputs = [part(question.arguments, rows, *half) for half in halves]
            yield "by halves of the batch", lambda: _joined([_answered(exam.model, half) for half in inputs])


def _stands_alone(exam: Exam, question: Question, rows: int, start: int, stop: int) -> bool:
    """Whether the float64 answer to these rows by themselves is these rows of the answer."""
    return _is_its_answer(exam, question, part(question.arguments, rows, start, stop), slice(start, stop))


def _is_its_answer(exam: Exam, question: Question, arguments: list[Any], where: Any = ...) -> bool:
    """Whether the float64 answer to these inputs is what stands there in the question's."""
    held = zip(exam.exact_answer(arguments), question.reference, strict=True)
    return all(close(got, reference[where], largest(reference)) for got, reference in held)


def _mutants(exam: Exam, first: Question) -> Iterator[_Mutant]:
    # What these hold on to stays alive beside every later question: not the first one, and not zeros of 6 GB.
    answer, means = first.honest, [_mean(h) for h in first.honest]
    yield _Mutant("zeros", lambda question: [torch.zeros_like(h) for h in question.honest], may_be_equal=False)
    yield _Mutant("constant", partial(_constant, means), may_be_equal=False)
    yield _Mutant("first_answer", lambda question: answer, may_be_equal=False)
    yield _Mutant("identity", _identity)
    yield _Mutant("first_row", _first_row)
    for name, half in HALVES.items():
        yield _Mutant(name, partial(_half, exam, half))
    yield _blind(exam, "last_ignored", _without_last)
    tensors = [i for i, (_, value) in enumerate(named_leaves(first.arguments)) if isinstance(value, Tensor)]
    if len(tensors) > 1:
        for i in tensors:
            yield _blind(exam, f"input_{i}_zeroed", partial(_without_input, i))
    yield _Mutant("other_weights", partial(_other_weights, exam))
    yield _Mutant("default_weights", partial(_default_weights, exam))


def _constant(first_means: Sequence[float], question: Question) -> list[Tensor]:
    """The mean of the answer; of the first one where the answer is one number, for its own mean is right."""
    held = zip(question.honest, first_means, strict=True)
    return [torch.full_like(own, _mean(own) if own.numel() > 1 else before) for own, before in held]


def _mean(answer: Tensor) -> float:
    return sum(piece.double().sum().item() for piece in answer.reshape(-1).split(CHUNK)) / max(answer.numel(), 1)


def _identity(question: Question) -> list[Tensor]:
    inputs = question.pristine()

    def like(answer: Tensor) -> Tensor:
        found = next((x for x in inputs if x.shape == answer.shape and x.dtype == answer.dtype), None)
        if found is None:
            raise _NotApplicable("no input has the shape of the answer")
        return found

    return [like(answer) for answer in question.honest]


def _first_row(question: Question) -> list[Tensor]:
    if not any(answer.dim() and answer.shape[0] > 1 for answer in question.honest):
        raise _NotApplicable("the answer has one row")
    return [answer[:1].expand_as(answer) if answer.dim() else answer for answer in question.honest]


def _half(exam: Exam, half: torch.dtype, question: Question) -> list[Tensor]:
    if exam.dtype in HALVES.values():
        raise _NotApplicable("the problem is in half precision")
    if all(error > ROUGH for error in map(_relative_error, question.honest, question.reference)):
        raise _NotApplicable("the honest answer is no better: torch computes in TF32 here")
    model = exam.converted(half)
    arguments = each_tensor(question.arguments, lambda x: x.to(half) if x.is_floating_point() else x)
    answers = _answered(model, arguments)
    return [answer.to(h.dtype) for answer, h in zip(answers, question.honest, strict=True)]


def _blind(exam: Exam, name: str, altered: Callable[[Question], list[Any]]) -> _Mutant:
    """The reference on other inputs."""
    return _Mutant(name, lambda question: _answered(exam.model, altered(question)), altered=altered)


def _without_last(question: Question) -> list[Any]:
    """The last element of each row of the inputs reads as zero."""

    def cut(x: Tensor) -> Tensor:
        if x.is_floating_point() and x.dim() and x.shape[-1] > 1:
            x = x.clone()
            x[..., -1] = 0
        return x

    return each_tensor(question.arguments, cut)


def _without_input(index: int, question: Question) -> list[Any]:
    chosen = named_leaves(question.arguments)[index][1]
    return each_tensor(question.arguments, lambda x: torch.zeros_like(x) if x is chosen else x)


def _other_weights(exam: Exam, question: Question) -> Sequence[Tensor]:
    """Weights of another seed: what ignores the loaded ones."""
    if not exam.model.state_dict():
        raise _NotApplicable("the problem has no weights")
    other = exam.problem.make_model(exam.init_arguments, exam.weight_seed + 1, exam.dtype, exam.device)
    if exam.constants:
        own = other.state_dict()
        for name, value in exam.model.state_dict().items():
            if name in exam.constants:
                own[name].copy_(value)
    exam.gain.apply(other)
    return _answered(other, question.arguments)


def _default_weights(exam: Exam, question: Question) -> Sequence[Tensor]:
    """The constants of the constructor: norms without their affine part, biases left out."""
    if not exam.constants:
        raise _NotApplicable(exam.why_constant)
    model = copy.deepcopy(exam.model)
    fill_constants(model, exam.constants)
    return _answered(model, question.arguments)


def _answered(model: torch.nn.Module, arguments: Sequence[Any]) -> list[Tensor]:
    """The leaves of one call; arguments are copied, for a reference may work in place."""
    return [value for _, value in named_leaves(model(*each_tensor(arguments, torch.clone)))]


def _joined(parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [torch.cat(list(both)) for both in zip(*parts, strict=True)]


def _relative_error(honest: Tensor, reference: Tensor) -> float:
    """Root mean square of the error over that of the answer; 0 where there is nothing to round."""
    if not honest.is_floating_point() or not honest.numel():
        return 0.0
    stride = -(-honest.numel() // SAMPLE)
    h, r = honest.reshape(-1)[::stride].to(reference.device).double(), reference.reshape(-1)[::stride].double()
    error, size = (h - r).square_().mean().sqrt().item(), r.square().mean().sqrt().item()
    return error / size if size else 0.0
