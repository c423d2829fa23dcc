"""Answers in lower precision, which a ruler has to tell from right ones: one that takes TF32 for right is none.

What is allowed of a sum that a difference magnifies is allowed of all that comes after it, too, and of what enters
before a constant is added: of a layer norm of numbers from 50 to 51 half precision passed so.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernelyard.core.problem import each_tensor
from kernelyard.judge.question import Question

# Parts of the names of operations in which torch multiplies and adds up.
PRODUCTS = ("attention", "bag", "conv", "dist", "dot", "gru", "lstm", "mm", "mv", "prod", "rnn", "trace")
BITS = {torch.float32: (11, 8), torch.float64: (24, 11, 8)}
"""Of the significand, that coarser dtypes keep: single precision, TF32 and fp16, bf16."""
DOUBLE_BITS = 53


def coarse_answers(question: Question, exact_answer: Callable[[list[Any]], list[Tensor]]) -> Iterator[list[Tensor]]:
    """By bits: the float64 answer rounded so, that to inputs rounded so, and that of products whose factors are."""
    finest = max((own.dtype for own in question.honest if own.dtype in BITS), key=_bits_of, default=None)
    for bits in BITS[finest] if finest else ():
        yield _as_answer(question, [rounded(reference, bits) for reference in question.reference])
        coarse = list(each_tensor(question.arguments, partial(rounded, bits=bits)))
        yield _as_answer(question, exact_answer(coarse))
        with _CoarseProducts(bits) as products:
            answers = exact_answer(question.arguments)
        if products.seen:
            yield _as_answer(question, answers)


def _bits_of(dtype: torch.dtype) -> int:
    return torch.finfo(dtype).bits


def _as_answer(question: Question, values: list[Tensor]) -> list[Tensor]:
    return [value.to(own.dtype) for value, own in zip(values, question.honest, strict=True)]


def rounded(x: Tensor, bits: int) -> Tensor:
    """To so many bits of significand, in float64; what is no number, and integers, as they are."""
    if not x.is_floating_point():
        return x
    dropped = DOUBLE_BITS - bits
    held = x.double()
    whole = (held.view(torch.int64) + (1 << (dropped - 1))) >> dropped << dropped
    return torch.where(held.isfinite(), whole.view(torch.float64), held)


class _CoarseProducts(TorchDispatchMode):
    """Every product that torch is asked for is of rounded factors."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self._bits = bits
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if torch.Tag.pointwise not in func.tags and any(part in func.overloadpacket.__name__ for part in PRODUCTS):
            self.seen = True
            args = tuple(rounded(one, self._bits) if isinstance(one, Tensor) else one for one in args)
        return func(*args, **(kwargs or {}))
