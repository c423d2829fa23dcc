"""What is asked of a solution, and what the reference answers to it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernelyard.sandbox.wire import named_leaves


@dataclass(frozen=True)
class Honest:
    """What the reference answers in the dtype of the problem, by torch's defaults; a name for each output."""

    names: tuple[str, ...]
    answers: tuple[Tensor, ...]


@dataclass(frozen=True)
class Question:
    """One set of inputs and what is expected of it."""

    arguments: list[Any]
    names: tuple[str, ...]
    reference: tuple[Tensor, ...]
    """float64."""
    honest: tuple[Tensor, ...]
    """The reference's answer in the dtype of the problem, by torch's defaults."""
    ruler: tuple[Tensor, ...] | None = None
    """float64, as far from `reference` as an answer may well be; None where the honest answer is the ruler."""
    exact: bool = False
    """The answer has to be equal, element by element."""

    def pristine(self) -> list[Tensor]:
        """The input tensors, in the order a worker returns them."""
        return tensors_of(self.arguments)

    @property
    def bytes(self) -> int:
        """Of its inputs and answers."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.pristine(), *self.honest))


def tensors_of(arguments: list[Any]) -> list[Tensor]:
    """The input tensors, in the order a worker returns them."""
    return [value for _, value in named_leaves(arguments) if isinstance(value, Tensor)]


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Equal bit for bit, wherever they lie: a NaN is itself, and -0.0 is not 0.0."""
    right = right.to(left.device)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(left.itemsize, torch.uint8)
    return torch.equal(left.contiguous().view(-1).view(bits), right.contiguous().view(-1).view(bits))
