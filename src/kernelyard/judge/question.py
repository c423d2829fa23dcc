"""What is asked of a solution, and what the reference answers to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from kernelyard.judge.compare import Yardstick
from kernelyard.sandbox.form import Form
from kernelyard.sandbox.wire import named_leaves


@dataclass(frozen=True)
class Honest:
    """What the reference answers in the dtype of the problem, by torch's defaults; a name for each output."""

    names: tuple[str, ...]
    answers: tuple[Tensor, ...]
    forms: tuple[Form, ...]


@dataclass(frozen=True)
class Question:
    """One set of inputs and what is expected of it."""

    arguments: list[Any]
    names: tuple[str, ...]
    reference: tuple[Tensor, ...]
    """float64; int64 where the answer is integers or truth values."""
    honest: tuple[Tensor, ...]
    """The reference's answer in the dtype of the problem, by torch's defaults."""
    forms: tuple[Form, ...]
    """How those outputs hang together: a reference may copy some inputs and return others."""
    ruler: tuple[Tensor | None, ...] | None = None
    """float64, as far from `reference` as an answer may well be; None where the honest answer is the ruler, or is that
    of an output."""
    exact: bool = False
    """The answer has to be equal, element by element."""
    rounding: tuple[float, ...] | None = None
    """By output, a relative error that is nothing, where that is more than half an ulp."""

    @cached_property
    def yardsticks(self) -> tuple[Yardstick, ...]:
        """By output. Of 6 GB they are half of what it takes to compare one answer."""
        rulers, rounding = self.ruler or (None,) * len(self.names), self.rounding or (0.0,) * len(self.names)
        return tuple(map(Yardstick.of, self.honest, self.reference, rulers, rounding))

    def pristine(self) -> list[Tensor]:
        """The input tensors, in the order a worker returns them."""
        return tensors_of(self.arguments)

    @property
    def bytes(self) -> int:
        """Of its inputs and answers."""
        return bytes_of(self.arguments, self.honest)


def bytes_of(arguments: list[Any], answers: Sequence[Tensor]) -> int:
    """Of one call's inputs and answers."""
    return sum(tensor.nbytes for tensor in (*tensors_of(arguments), *answers))


def tensors_of(arguments: list[Any]) -> list[Tensor]:
    """The input tensors, in the order a worker returns them."""
    return [value for _, value in named_leaves(arguments) if isinstance(value, Tensor)]
