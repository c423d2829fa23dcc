"""The judge's own side of a problem file: inputs from secret seeds, expected values, cost. Nothing of it leaves."""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernelyard.core.errors import FAULTS, first_line
from kernelyard.core.operator import Cost, Tolerance
from kernelyard.core.problem import Problem, Source, each_tensor, listed
from kernelyard.core.verdict import ErrorFigures, Status
from kernelyard.judge.answers import as_far_as_it_goes, copied_to, noise_of, room_for, unwritten, usual_error
from kernelyard.judge.compare import compare, finite, passes, same_bits
from kernelyard.judge.contract import Mark, breach
from kernelyard.judge.convolving import SLOW_SECONDS, convolving, some_rows, torchs_own_serve
from kernelyard.judge.counting import Uncountable, cost_of, count
from kernelyard.judge.gain import Gain, clearest
from kernelyard.judge.loops import OneLoop
from kernelyard.judge.parts import close, has_rows, largest, part, rows_of, spans
from kernelyard.judge.question import Honest, Question, bytes_of, tensors_of
from kernelyard.judge.reference import InvalidProblem, must_cross, outputs_of, random_state, writes
from kernelyard.judge.shaking import by_several_errors
from kernelyard.judge.weights import converted, fill_constants, handed_over, redraw_constants
from kernelyard.judge.widening import in_float64
from kernelyard.sandbox.form import forms_of
from kernelyard.sandbox.returned import Fetched
from kernelyard.sandbox.wire import MOST_OUTPUTS, named_leaves

# Of a question's inputs and answers, for whose rows the float64 answer is computed at a time.
PART_BYTES = 512 << 20
# How much farther from an answer by parts than from the first one the honest answer may be.
UNUSUAL = 32.0
# Elements by which that is told.
SAMPLE = 1 << 20

CHANGES_INPUTS = "the reference changes its inputs; expected IN_PLACE = True of a problem that may"


class Exam:
    """A problem made concrete on a device in a dtype. Raises InvalidProblem where the reference fails.

    `spill`: the float64 answer is computed on the host where the device's memory does not hold it.
    """

    def __init__(
        self, problem: Problem, dtype: torch.dtype, device: torch.device, tolerance: Tolerance, *, spill: bool = True
    ) -> None:
        self.spill = spill
        self.problem, self.dtype, self.device, self.tolerance = problem, dtype, device, tolerance
        self.weight_seed = secrets.randbits(31)
        try:
            self.init_arguments = listed(problem.get_init_inputs(), "get_init_inputs")
            self.model = problem.make_model(self.init_arguments, self.weight_seed, dtype, device)
            state = [(f"weight {name}", value) for name, value in self.model.state_dict().items()]
            for name, value in state:
                if not isinstance(value, Tensor):
                    raise InvalidProblem(f"{name} is a {type(value).__name__}; expected a tensor")
            must_cross(state)
            declined = "weights" in problem.no_stress
            self.constants = {} if declined else redraw_constants(self.model)
            self.why_constant = "declined by the problem" if declined else "no weight is constant"
            self.exact = self.converted(torch.float64)
            self.gain = Gain()
            # In bf16 two of 56 honest SqueezeNets were refused with larger weights, by one of 248 elements.
            self.may_gain = not declined and dtype is torch.float32
        except InvalidProblem:
            raise
        except FAULTS as error:
            raise InvalidProblem(f"the reference cannot be constructed: {first_line(error)}") from error
        self.answer: tuple[Tensor, ...] = ()
        """The first honest answer without its data, or more where others are of another size."""
        self.parted: tuple[int, int] | None = None
        """Rows of a large question, and how many of them the float64 answer is computed of at a time: where the first
        question's rows had nothing to do with each other."""
        self.spots: tuple[int, int] | None = None
        """Rows, and how many of them a part has, of which float64 is asked where a timed answer is looked at."""
        self.widened = True
        """Whether what the reference calls float32 is float64 in the float64 answer."""
        self.by_cudnn = True
        """Whether the float64 answer may be cuDNN's."""
        self.noise: tuple[float, ...] = ()
        """By output: half an ulp of one, or of the first answer's largest element where that is smaller."""
        self.one_loop = OneLoop()
        self.usual: tuple[float, ...] = ()
        """By output: the largest error of the first honest answer, over its largest element."""

    def converted(self, dtype: torch.dtype) -> torch.nn.Module:
        """The model in another dtype, with the weights that it has."""

        def rebuild() -> torch.nn.Module:
            return self.problem.make_model(self.init_arguments, self.weight_seed, self.dtype, self.device)

        return converted(self.model, dtype, rebuild)

    def to_load(
        self, source: Source, class_name: str
    ) -> tuple[str, str, str, list[Any], int, torch.dtype, dict[str, Tensor]]:
        """What a session takes to construct a class of `source` as the model is, with its weights of now."""
        given = self.init_arguments, self.weight_seed, self.dtype, handed_over(self.model)
        return source.path.name, source.text, class_name, *given

    @property
    def has_own_weights(self) -> bool:
        """Whether weights are others than the constructor's."""
        return bool(self.constants or self.gain.by)

    def restore_weights(self, reason: str) -> None:
        """Back to the weights of the constructor, for good; `reason` is for the verdict."""
        self.why_constant, self.may_gain = reason, False
        for model in (self.model, self.exact):
            self.gain.apply(model, undo=True)
            fill_constants(model, self.constants)
        self.constants, self.gain = {}, Gain()

    def first_question(self) -> Question:
        """The first one, which also tells whether the reference bears weights that are redrawn."""
        begin = time.monotonic()
        try:
            question = self.question()
        except InvalidProblem:
            if not self.constants:
                raise
            self.restore_weights("the reference does not bear other constants")
            self.widened = True
            question = self.question()
        if self.device.type == "cuda" and time.monotonic() - begin > SLOW_SECONDS:
            few = some_rows(question.arguments, question.honest, self.exact_piece)
            self.by_cudnn = not torchs_own_serve(partial(self.exact_piece, few), self.device)
        if self.may_gain and question.bytes <= PART_BYTES:
            others = self.arguments()
            again, other = partial(self.question, question.arguments), lambda: self.honest(others).answers
            self.gain, question = clearest(self.model, self.exact, question, again, other)
        self.know(question)
        self._must_repeat(question)
        rows = rows_of(question.arguments, question.honest)
        # Two parts at least, which are to be told apart; a round's room is half of one (plan.py), above which rows are
        # under stress by themselves (mixed.py).
        if rows and question.bytes > PART_BYTES // 2:
            self.parted = (rows, max(1, min(rows // 2, rows * PART_BYTES // question.bytes)))
            if not self.parts_agree(question, self.parted):
                self.parted = None
        return question

    def know(self, question: Question) -> None:
        """What the first question says of all answers."""
        self.answer = tuple(torch.empty_like(answer, device="meta") for answer in question.honest)
        self.noise = tuple(noise_of(answer) for answer in question.honest)
        self.usual = tuple(usual_error(h, r) for h, r in zip(question.honest, question.reference, strict=True))

    def is_whole(self, question_bytes: int) -> bool:
        """Whether the float64 answer to a large question is computed at once, as it is not in parts."""
        return self.parted is None and question_bytes > PART_BYTES

    def _must_repeat(self, question: Question) -> None:
        """A reference that keeps state between its calls: a solution is called in another order, and more often."""
        inputs = copied_to(question.arguments, self.dtype, self.device)
        try:
            with torch.no_grad():
                again = outputs_of(self.model(*inputs))
        except FAULTS as error:
            raise InvalidProblem(f"the reference fails when it is called again: {first_line(error)}") from error
        if not self.problem.in_place and not all(map(same_bits, tensors_of(inputs), question.pristine())):
            raise InvalidProblem(CHANGES_INPUTS)
        names, values = zip(*again, strict=True) if again else ((), ())
        if names != question.names or self.mark_values(question, values).status is not Status.PASSED:
            raise InvalidProblem("the reference keeps state: called again on the same input, it answers something else")
        self.one_loop.needed = False  # that was the reference
        if not all(map(same_bits, values, question.honest)):
            # By the honest error itself another draw passes, where it is Python's or a generator of the model's own.
            once_more = zip(self.exact_answer(question.arguments), question.reference, strict=True)
            if not all(close(got, exact, largest(exact)) for got, exact in once_more if finite(exact)):
                raise InvalidProblem("the reference draws random numbers: float64 has another answer each time")

    def arguments(self) -> list[Any]:
        """Fresh inputs from a fresh secret seed."""
        try:
            made = self.problem.make_inputs(secrets.randbits(31), self.dtype, self.device)
        except FAULTS as error:
            raise InvalidProblem(f"get_inputs fails: {first_line(error)}") from error
        must_cross(named_leaves(made, "inputs"))
        return made

    def honest(self, arguments: list[Any]) -> Honest:
        """The reference's own answer. Raises InvalidProblem where it is none that can be judged by."""
        written = writes(arguments)
        try:
            before = random_state(self.device)
            with torch.no_grad():
                inputs = self._for_the_reference(arguments, written)
                returned = self.model(*inputs)
            honest, forms = outputs_of(returned), forms_of(returned, inputs)
            del inputs, returned  # copies of the inputs, which a device need not hold any longer
        except FAULTS as error:
            raise InvalidProblem(f"the reference fails: {first_line(error)}") from error
        if writes(arguments) != written:
            raise InvalidProblem(CHANGES_INPUTS)
        if not torch.equal(before, random_state(self.device)):
            # Two random answers are far apart, and that distance would be the ruler: whatever is as large would pass.
            raise InvalidProblem("the reference draws random numbers, as dropout does in training mode")
        if not honest:
            raise InvalidProblem("the reference returns nothing; expected tensors")
        if len(honest) > MOST_OUTPUTS:
            raise InvalidProblem(f"the reference returns {len(honest)} tensors; expected {MOST_OUTPUTS} at most")
        must_cross(honest)
        for name, value in honest:
            if not isinstance(value, Tensor):
                raise InvalidProblem(f"the reference returns {type(value).__name__} as {name}; expected tensors")
            if value.is_complex():
                raise InvalidProblem(f"the reference returns complex numbers as {name}; expected torch.view_as_real's")
            if not self.problem.may_be_nonfinite(name) and not finite(value):
                raise InvalidProblem("the reference's answer is not finite")
        if self.problem.in_place:  # an answer may lie in what may be written to
            written_to = tuple(name for name, _ in named_leaves(list(arguments), "input"))
            forms = [form._replace(memory_of=written_to + form.memory_of) for form in forms]
        names, answers = zip(*honest, strict=True)
        made = Honest(names, answers, tuple(forms))
        if len(self.answer) == len(made.answers):
            self.answer = tuple(map(room_for, self.answer, made.answers))
        return made

    def _for_the_reference(self, arguments: list[Any], written: list[int | None]) -> list[Any]:
        """Copies, but of what is large where the reference left the first inputs as they were, and torch counts writes.

        Of 6 GB the copy was one of five such pieces that the judge holds beside what an H100 of 80 GB has room for.
        """
        large = bool(self.answer) and bytes_of(arguments, self.answer) > PART_BYTES
        if large and not self.problem.in_place and None not in written:
            return each_tensor(arguments, lambda x: x)  # its lists and dicts are copies still
        return copied_to(arguments, self.dtype, self.device)

    def question(self, arguments: list[Any] | None = None, honest: Honest | None = None) -> Question:
        """Inputs with the float64 and the honest answer."""
        arguments = self.arguments() if arguments is None else arguments
        honest = honest or self.honest(arguments)
        try:
            reference = self.exact_answer(arguments)
            if self.parted and has_rows(arguments, self.parted[0]) and not self.is_usual(honest.answers, reference):
                # Rows that had nothing to do with each other in the first question may have in this one.
                self.parted = self.spots = None
                reference = self.exact_answer(arguments)
        except FAULTS as error:
            if self._by_its_name():
                return self.question(arguments, honest)
            raise InvalidProblem(f"the reference fails: {first_line(error)}") from error
        if [answer.shape for answer in honest.answers] != [exact.shape for exact in reference]:
            if self._by_its_name():
                return self.question(arguments, honest)
            raise InvalidProblem("the reference's answer has another size in float64: rounding decides how large it is")
        if self.usual and len(honest.names) != len(self.usual):
            raise InvalidProblem("the reference returns more tensors for some inputs than for others")
        for i, (name, value) in enumerate(zip(honest.names, honest.answers, strict=True)):
            if self.problem.may_be_nonfinite(name):
                reference[i] = as_far_as_it_goes(reference[i], value.dtype)
            elif not finite(reference[i]):
                raise InvalidProblem("the reference's answer is not finite")
        return Question(arguments, honest.names, tuple(reference), honest.answers, honest.forms)

    def _by_its_name(self) -> bool:
        """Whether float32 is from now on what it says, and was not: a first question may look at its bits."""
        if self.usual or not self.widened:
            return False
        self.widened = False
        return True

    def is_usual(self, honest: Sequence[Tensor], reference: Sequence[Tensor]) -> bool:
        """Whether the honest answer is about as far from this one as the first was, in a sample of its elements."""
        for answer, exact, usual in zip(honest, reference, self.usual, strict=True):
            stride = -(-answer.numel() // SAMPLE) or 1
            error = usual_error(answer.reshape(-1)[::stride], exact.reshape(-1)[::stride])
            if answer.is_floating_point() and error > UNUSUAL * max(usual, torch.finfo(answer.dtype).eps):
                return False
        return True

    def pieces(self, arguments: list[Any], parts: tuple[int, int] | None = None) -> Iterator[tuple[Any, list[Any]]]:
        """Where in the answer each part of a question belongs, and its inputs; the whole of one that has none.

        `parts`: rows, and how many of them a part has; those of a large question without.
        """
        rows, step = parts or self.parted or (0, 0)
        if rows and has_rows(arguments, rows):
            for start, stop in spans(rows, step):
                yield slice(start, stop), part(arguments, rows, start, stop)
        else:
            yield ..., arguments

    def exact_parts(self, parts: Sequence[list[Any]]) -> list[Tensor]:
        """The float64 answers to parts of a large question, one below the other."""
        return [torch.cat(rows) for rows in zip(*map(self.exact_piece, parts), strict=True)]

    def exact_piece(self, inputs: list[Any]) -> list[Tensor]:
        """The float64 answer to what the device has room for."""
        with self._in_float64():
            return self._exact(inputs, self.device)

    def exact_answer(self, arguments: list[Any]) -> list[Tensor]:
        """The float64 answer; on the CPU where the device's memory does not hold it."""
        try:
            return self._exact_on_device(arguments)
        except torch.OutOfMemoryError:
            if self.by_cudnn and not self.spill:
                raise
        if not self.by_cudnn:  # which takes no columns
            self.by_cudnn = True
            return self.exact_answer(arguments)
        host = torch.device("cpu")
        self.exact.to(host)
        try:
            with self._in_float64():
                return self._exact(arguments, host)
        finally:
            self.exact.to(self.device)

    @contextmanager
    def _in_float64(self) -> Iterator[None]:
        with torch.no_grad(), in_float64(by_name=self.widened), convolving(by_cudnn=self.by_cudnn):
            yield

    def _exact_on_device(self, arguments: list[Any]) -> list[Tensor]:
        with self._in_float64():
            if self.parted and has_rows(arguments, self.parted[0]):
                return self._in_parts(arguments, self.parted[0])
            return self._exact(arguments, self.device)

    def _exact(self, arguments: list[Any], device: torch.device) -> list[Any]:
        leaves = [value for _, value in outputs_of(self.exact(*copied_to(arguments, torch.float64, device)))]
        # Integers stay some, for float64 holds them all up to 2**53 and no further; truth values become some.
        return [one.double() if one.is_floating_point() else one.long() for one in leaves]

    def _in_parts(self, arguments: list[Any], rows: int) -> list[Tensor]:
        answers: list[Tensor] = []
        for where, inputs in self.pieces(arguments):
            pieces = self._exact(inputs, self.device)
            answers = answers or [piece.new_empty((rows, *piece.shape[1:])) for piece in pieces]
            for answer, piece in zip(answers, pieces, strict=True):
                answer[where] = piece
        return answers

    def parts_agree(self, question: Question, parts: tuple[int, int]) -> bool:
        """Whether the float64 answers to these parts of the question are the parts of its answer."""
        scales = [largest(reference) for reference in question.reference]
        with self._in_float64():
            for where, inputs in self.pieces(question.arguments, parts):
                try:
                    pieces = self._exact(inputs, self.device)
                except Exception:
                    # A model that knows its batch size, or has no room.
                    return False
                held = zip(pieces, question.reference, scales, strict=True)
                if not all(close(piece, reference[where], scale) for piece, reference, scale in held):
                    return False
        return True

    def mark(self, question: Question, fetched: Fetched) -> Mark:
        """Hold one call's outputs against what is expected of them."""
        broken = breach(Honest(question.names, question.honest, question.forms), fetched)
        return broken or self.mark_values(question, fetched.tensors or ())

    def is_honest(self, honest: Honest, fetched: Fetched) -> bool:
        """Whether the outputs keep the contract and are the honest answer, bit for bit: then they are right."""
        if breach(honest, fetched) or any(map(self.problem.may_be_nonfinite, honest.names)):
            return False
        return all(map(same_bits, fetched.tensors or (), honest.answers))

    def mark_values(self, question: Question, tensors: Sequence[Tensor]) -> Mark:
        """Hold tensors that keep the contract against what is expected of them."""
        mark = self._by_its_ruler(question, tensors)
        if mark.status is not Status.INCORRECT_VALUE or question.exact:
            return mark
        if several := by_several_errors(question, self.dtype, self.exact_answer):
            question, mark = several, self._by_its_ruler(several, tensors)
        if mark.status is Status.INCORRECT_VALUE:
            inputs = next(inputs for _, inputs in self.pieces(question.arguments))
            marked, exact = self._by_its_ruler, self._exact_on_device
            mark = self.one_loop.passes(question, inputs, tensors, mark, marked, exact) or mark
        return mark

    def _by_its_ruler(self, question: Question, tensors: Sequence[Tensor]) -> Mark:
        errors: list[ErrorFigures] = []
        held = zip(question.names, tensors, question.reference, question.honest, question.yardsticks, strict=True)
        for name, got, reference, honest, yardstick in held:
            if question.exact and not torch.equal(got, honest.to(got.device)):
                differ = int((got != honest.to(got.device)).sum())
                line = f"{name}: {differ} of {got.numel()} elements differ where every sum is exact"
                return Mark(Status.INCORRECT_VALUE, line, line)
            allow = self.problem.may_be_nonfinite(name)
            comparison = compare(name, got, reference, honest, self.tolerance, yardstick, allow_nonfinite=allow)
            errors += [comparison.figures] if comparison.figures else []
            if not comparison.passed:
                return Mark(comparison.status, comparison.message, comparison.report, tuple(errors))
        return Mark(Status.PASSED, errors=tuple(errors))

    def would_pass(self, question: Question, answers: Iterable[Tensor]) -> bool:
        """Whether these answers, one for each output, pass for those to this question."""
        held = zip(answers, question.reference, question.honest, question.yardsticks, strict=True)
        return all(passes(got, r, h, self.tolerance, yardstick) for got, r, h, yardstick in held)

    def degenerate(self, question: Question, other_answer: tuple[Tensor, ...]) -> str | None:
        """Why this problem cannot tell a right answer from a lazy one, if it cannot.

        `other_answer` is the honest answer to other inputs.
        """

        if self.would_pass(question, map(torch.zeros_like, question.honest)):
            return "an output of zeros passes"
        if self.would_pass(question, map(unwritten, question.honest)):
            return "memory that nobody wrote to passes"
        if self.would_pass(question, other_answer):
            return "the answer to one input passes for another"
        return None

    def cost(self, question: Question) -> Cost:
        """What is read of inputs and weights, once, and outputs written once; operations as torch counts them.

        Counted without running it where that goes: in cuDNN's recurrent layers torch counts none.
        """
        try:
            return count(self.problem, self.dtype).cost
        except Uncountable:
            pass
        return cost_of(self.model, copied_to(question.arguments, self.dtype, self.device))
