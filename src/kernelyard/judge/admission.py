"""Whether a problem can tell a right answer from a wrong one: mutants of its reference must fail, honest answers pass.

A mutant is a wrong way to answer that costs nothing to write: zeros, a constant, the first answer again, the input,
half the precision, a weight or an input left out. Each is held against the questions that a solution would be asked,
the stressed ones included. One that passes all of them is a hole that a solution can use.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from kernelyard.core.errors import first_line
from kernelyard.core.operator import Tolerance
from kernelyard.core.problem import Problem, each_tensor
from kernelyard.core.verdict import Record, Status
from kernelyard.core.workload import dtype_name
from kernelyard.judge.exam import Exam, InvalidProblem
from kernelyard.judge.parts import close, largest, part, rows_of
from kernelyard.judge.question import Question
from kernelyard.judge.size import too_large
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
    device: str
    status: Literal["valid", "invalid_problem", "skipped", "not_loaded"]
    """`not_loaded`: the file cannot be read, is not in the format or fails to load; it says nothing of a problem."""
    reason: str = ""
    mutants: tuple[MutantRecord, ...] = ()
    questions: tuple[str, ...] = ()
    """Those that were asked."""
    skipped: dict[str, str] = Field(default_factory=dict)
    """Stresses that were not fair, with the reason."""
    seconds: float = 0.0

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
    answer: Answer
    may_be_equal: bool = True
    """Equal to the reference on every question, it is no mutant: the reference is the identity, or has no rounding."""
    killed_by: str = ""
    why_not: str = ""
    equal: bool = True

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

    def questions(self) -> Iterator[tuple[str, Question]]:
        """The problem's own twice, then every stress that is fair; one is alive at a time, beside the first."""
        first = self.exam.first_question()
        self.mutants = list(_mutants(self.exam, first))
        yield "first", first
        yield "second", self.exam.question()
        makers = {stress.name: partial(stressed, self.exam, stress) for stress in STRESSES}
        for name, make in {ONE_ELEMENT: partial(one_changed, self.exam, first), **makers}.items():
            if time.monotonic() > self.deadline:
                self.skipped[name] = "no time left"
                continue
            try:
                yield name, make()
            except Unfair as reason:
                self.skipped[name] = str(reason)
            except torch.OutOfMemoryError:
                self.skipped[name] = "the device's memory does not hold it"

    def ask(self, name: str, question: Question) -> None:
        """Every mutant that is still alive. Raises InvalidProblem where an honest answer fails."""
        self.asked.append(name)
        error = max(map(_relative_error, question.honest, question.reference))
        if error > HOPELESS:
            raise InvalidProblem(f"{HONEST_FAILS} is itself off by {100 * error:.0f} %: nothing can be told by it")
        for kind, tensors in _honest(self.exam, question):
            if (mark := self.exam.mark_values(question, tensors)).status is not Status.PASSED:
                raise InvalidProblem(f"{HONEST_FAILS} {kind} fails the question {name!r}: {mark.message}")
        for mutant in self.mutants:
            if mutant.killed_by or mutant.why_not:
                continue
            try:
                tensors = mutant.answer(question)
            except _NotApplicable as reason:
                mutant.why_not = str(reason)
                continue
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                mutant.why_not = f"cannot be computed: {first_line(error)}"
                continue
            if self.exam.mark_values(question, tensors).status is not Status.PASSED:
                mutant.killed_by = name
            mutant.equal &= all(torch.equal(own, h) for own, h in zip(tensors, question.honest, strict=True))


def admit(
    problem: Problem,
    *,
    device: torch.device,
    dtype: torch.dtype,
    memory_bytes: int,
    seconds: float = 60.0,
) -> Admission:
    """Hold the problem's mutants and honest answers against its own questions; the problem runs right here.

    A problem that takes more than `memory_bytes` or `seconds` is skipped; the time is looked at between questions.
    """
    begin = time.monotonic()

    def made(status: Literal["valid", "invalid_problem", "skipped"], reason: str, course: _Course | None) -> Admission:
        return Admission(
            problem=problem.source.name,
            problem_sha256=problem.source.sha256,
            dtype=dtype_name(dtype),
            device=str(device),
            status=status,
            reason=reason,
            mutants=tuple(mutant.record() for mutant in course.mutants) if course else (),
            questions=tuple(course.asked) if course else (),
            skipped=course.skipped if course else {},
            seconds=time.monotonic() - begin,
        )

    if reason := too_large(problem, dtype, device, memory_bytes):
        return made("skipped", reason, None)
    course = None
    try:
        course = _Course(Exam(problem, dtype, device, Tolerance(), spill=False), begin + seconds)
        with torch.no_grad():
            for name, question in course.questions():
                course.ask(name, question)
    except InvalidProblem as error:
        if any(word in str(error) for word in ("out of memory", "can't allocate", "OutOfMemory")):
            return made("skipped", f"too large for this machine: {error}", course)
        return made("invalid_problem", str(error), course)
    except (torch.OutOfMemoryError, MemoryError) as error:
        return made("skipped", f"too large for this machine: {first_line(error)}", course)
    survived = [mutant.name for mutant in course.mutants if mutant.record().outcome == "survived"]
    if survived and "no time left" in course.skipped.values():
        return made("skipped", f"no time left to decide on {', '.join(survived)}", course)
    if survived:
        return made("invalid_problem", f"cannot tell from the reference: {', '.join(survived)}", course)
    return made("valid", "", course)


def _honest(exam: Exam, question: Question) -> Iterator[tuple[str, Sequence[Tensor]]]:
    """The ways to be right: again, from float64, and by halves of the batch where rows are independent."""
    yield "computed again", _answered(exam.model, question.arguments)
    rounded = zip(question.reference, question.honest, strict=True)
    yield "rounded from float64", [reference.to(h.device, h.dtype) for reference, h in rounded]
    if rows := rows_of(question.arguments, question.honest):
        halves = [part(question.arguments, rows, *span) for span in ((0, rows // 2), (rows // 2, rows))]
        try:
            exact = _joined([exam.exact_answer(half) for half in halves])
            alike = [close(got, r, largest(r)) for got, r in zip(exact, question.reference, strict=True)]
        except torch.OutOfMemoryError:
            raise
        except Exception:
            # A model that knows its batch size: of Mamba's blocks einsum says so with a ValueError.
            return
        if all(alike):
            yield "by halves of the batch", _joined([_answered(exam.model, half) for half in halves])


def _mutants(exam: Exam, first: Question) -> Iterator[_Mutant]:
    zeros = [torch.zeros_like(h) for h in first.honest]
    yield _Mutant("zeros", lambda question: zeros, may_be_equal=False)
    yield _Mutant("constant", partial(_constant, first.honest), may_be_equal=False)
    yield _Mutant("first_answer", lambda question: first.honest, may_be_equal=False)
    yield _Mutant("identity", _identity)
    yield _Mutant("first_row", _first_row)
    for name, half in HALVES.items():
        yield _Mutant(name, partial(_half, exam, half))
    yield _Mutant("last_ignored", partial(_last_ignored, exam))
    tensors = [i for i, (_, value) in enumerate(named_leaves(first.arguments)) if isinstance(value, Tensor)]
    if len(tensors) > 1:
        for i in tensors:
            yield _Mutant(f"input_{i}_zeroed", partial(_zeroed, exam, i))
    yield _Mutant("other_weights", partial(_other_weights, exam))
    yield _Mutant("default_weights", partial(_default_weights, exam))


def _constant(first: Sequence[Tensor], question: Question) -> list[Tensor]:
    """The mean of the answer; of the first one where the answer is one number, for its own mean is right."""

    def mean(own: Tensor, before: Tensor) -> Tensor:
        return torch.full_like(own, (own if own.numel() > 1 else before).double().mean().item())

    return [mean(own, before) for own, before in zip(question.honest, first, strict=True)]


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


def _last_ignored(exam: Exam, question: Question) -> Sequence[Tensor]:
    """The last element of each row of the inputs reads as zero."""

    def cut(x: Tensor) -> Tensor:
        if x.is_floating_point() and x.dim() and x.shape[-1] > 1:
            x = x.clone()
            x[..., -1] = 0
        return x

    return _answered(exam.model, each_tensor(question.arguments, cut))


def _zeroed(exam: Exam, index: int, question: Question) -> Sequence[Tensor]:
    chosen = named_leaves(question.arguments)[index][1]
    arguments = each_tensor(question.arguments, lambda x: torch.zeros_like(x) if x is chosen else x)
    return _answered(exam.model, arguments)


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
