"""A large question of which some rows are under stress, each stress on rows of its own, all of them in one call.

To put KernelBench's 13 GB under a stress as a whole takes a second and the memory of five such questions, so two of
eight stresses were asked, and none among timed calls. Where rows have nothing to do with each other, a few are a
question of their own, with its own answer in float64, and all eight take less than one whole.
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from kernelyard.core.problem import each_tensor
from kernelyard.judge.exam import Exam
from kernelyard.judge.parts import part
from kernelyard.judge.question import Question, bytes_of, tensors_of
from kernelyard.judge.stress import Stress, Unfair, stressed

ROWS_BYTES = 16 << 20
"""Of inputs and answers, under one stress."""


@dataclass(frozen=True)
class Part:
    """Some rows under a stress."""

    stress: str
    start: int
    stop: int
    question: Question

    def of(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """What of a whole answer is the answer to this."""
        return [tensor[self.start : self.stop] for tensor in tensors]


@dataclass(frozen=True)
class Mixed:
    """What stands in some rows of any inputs, and what these rows' answer is then."""

    rows: int
    parts: tuple[Part, ...]
    kept: tuple[bool, ...]
    """By input tensor, whether it is the problem's own, which `get_inputs` returns again: a copy is written to."""

    def within(self, arguments: list[Any]) -> list[Any]:
        """`arguments` with rows under stress in place of their own, and with what these had of inputs without rows.

        Of another size than those that these were made of, they stay as they are.
        """
        own_of_problem = {id(one) for one, kept in zip(tensors_of(arguments), self.kept, strict=True) if kept}
        written: list[Any] = each_tensor(arguments, lambda x: x.clone() if id(x) in own_of_problem else x)
        pairs = [
            pair
            for one in self.parts
            for pair in zip(
                tensors_of(part(written, self.rows, one.start, one.stop)), one.question.pristine(), strict=True
            )
        ]
        if any(own.shape != new.shape for own, new in pairs):
            return arguments
        for own, new in pairs:
            own.copy_(new)
        return written


def mixed(exam: Exam, stresses: Sequence[Stress]) -> Mixed:
    """Rows under the first of these stresses that there are rows for, where fair. Raises Unfair for none."""
    if exam.parted is None:
        raise Unfair("its rows need each other")
    arguments, others = exam.arguments(), exam.arguments()
    pairs = zip(tensors_of(arguments), tensors_of(others), strict=True)
    kept = tuple(one.data_ptr() == other.data_ptr() for one, other in pairs)
    del others
    rows = exam.parted[0]
    chosen = stresses[: rows // 2]
    band = rows // max(len(chosen), 2)
    size = bytes_of(arguments, exam.answer)
    width = min(band, max(1, ROWS_BYTES * rows // max(size, 1)))
    parts = []
    for i, stress in enumerate(chosen):
        start = i * band + secrets.randbelow(band - width + 1)
        inputs = part(arguments, rows, start, start + width)
        shared = [one for one, whole in zip(tensors_of(inputs), tensors_of(arguments), strict=True) if one is whole]
        with suppress(Unfair):
            parts.append(Part(stress.name, start, start + width, stressed(exam, stress, inputs, fixed=shared)))
    if not parts:
        raise Unfair("of no rows by themselves")
    return Mixed(rows, tuple(parts), kept)
