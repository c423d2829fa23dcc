"""Answers in lower precision, which a ruler has to tell from right ones: one that takes TF32 for right is none.

What is allowed of a sum that a difference magnifies is allowed of all that comes after it, too, and of what enters
before a constant is added: of a layer norm of numbers from 50 to 51 half precision passed so. One thing at a time is
coarse, for another output, or what is added to the norm, would tell of all at once.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernelyard.core.problem import each_tensor
from kernelyard.judge.question import Question, tensors_of
from kernelyard.judge.shaking import with_changed

# Parts of the names of operations in which torch multiplies and adds up.
PRODUCTS = ("attention", "bag", "conv", "dist", "dot", "gru", "lstm", "mm", "mv", "prod", "rnn", "trace")
BITS = {torch.float32: (12, 11, 9, 8), torch.float64: (25, 24, 12, 11, 9, 8)}
"""Of the significand, that coarser dtypes keep, and one more: single precision, TF32 and fp16, bf16. What is half as
far off has to be told, too, lest chance decide: of a norm of sums from 50 on, TF32 passed in one question of four."""
DOUBLE_BITS = 53
MOST = 32
"""Tensors on the way to an answer: of each float64 is asked four times more."""


class Countless(Exception):
    """The reference asks for more operations than can be coarse one by one."""


def coarse_answers(question: Question, exact_answer: Callable[[list[Any]], list[Tensor]]) -> Iterator[list[Tensor]]:
    """Float64 answers with one thing rounded, by the bits of each coarser dtype: an output, an input, a tensor that one
    of the reference's operations returns, the factors of one product. Raises Countless, and ValueError where no
    answer is in single or double precision."""
    finest = max((own.dtype for own in question.honest if own.dtype in BITS), key=_bits_of)
    with _Coarse(BITS[finest][0]) as counted:
        exact_answer(question.arguments)
    if counted.returned > MOST:
        raise Countless(f"{counted.returned} tensors are returned on the way to the answer; at most {MOST} are tried")
    inputs = [one for one in tensors_of(question.arguments) if one.is_floating_point()]
    for bits in BITS[finest]:
        for i in range(len(question.reference)):
            answers = [rounded(one, bits) if i == k else one for k, one in enumerate(question.reference)]
            yield _as_answer(question, answers)
        for chosen in inputs:
            yield _as_answer(question, exact_answer(with_changed(question.arguments, chosen, rounded(chosen, bits))))
        places = [{"result": i} for i in range(counted.returned)] + [{"product": i} for i in range(counted.products)]
        for place in places:
            with _Coarse(bits, **place):
                answers = exact_answer(question.arguments)
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


def is_named(func: Any, parts: Sequence[str]) -> bool:
    """Whether an operation of torch's, not one that looks at each element by itself, has one of these in its name."""
    return torch.Tag.pointwise not in func.tags and any(part in func.overloadpacket.__name__ for part in parts)


class _Coarse(TorchDispatchMode):
    """One tensor that an operation returns, or the factors of one product, are rounded; all are counted."""

    def __init__(self, bits: int, *, result: int = -1, product: int = -1) -> None:
        super().__init__()
        self._bits, self._result, self._product = bits, result, product
        self.returned = self.products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if is_named(func, PRODUCTS):
            if self.products == self._product:
                args = _with_coarse_factors(func.overloadpacket.__name__, args, self._bits)
            self.products += 1
        answer = func(*args, **(kwargs or {}))
        if any(returned.alias_info is not None for returned in func._schema.returns):
            return answer  # a view, or what it was given
        return each_tensor(answer, self._counted)

    def _counted(self, value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        self.returned += 1
        return rounded(value, self._bits) if self.returned - 1 == self._result else value


def _with_coarse_factors(name: str, args: Sequence[Any], bits: int) -> tuple[Any, ...]:
    """Of addmm and the like without what is added, of a convolution without its bias."""
    factors = range(1, 3) if name.startswith(("add", "badd")) else range(2) if "conv" in name else range(len(args))
    return tuple(rounded(one, bits) if i in factors and isinstance(one, Tensor) else one for i, one in enumerate(args))
