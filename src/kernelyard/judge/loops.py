"""What one loop over many numbers may be off by: the ruler of whoever adds up in the plainest way there is.

Eager adds up in blocks and trees. One sum over n numbers of one sign, each partial sum rounded, is off by 0.64 sqrt(n)
half ulps of the largest in the worst of a few hundred rows, and by 0.22 sqrt(n) in the mean of squares (n = 1024 to
16384): the column sums, tiled matrix products and atomic additions that everybody writes, as right as fp32 makes them.
With TF32 a product of 4096 terms of one sign is off by some 300 half ulps, of signs that differ by 1600.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernelyard.core.errors import FAULTS
from kernelyard.core.verdict import Status
from kernelyard.judge.coarse import PRODUCTS, coarse_answers, is_named
from kernelyard.judge.contract import Mark
from kernelyard.judge.parts import largest
from kernelyard.judge.question import Question, tensors_of
from kernelyard.judge.shaking import FEW, nonzero_place, with_changed
from kernelyard.judge.summing import PARTS, rounding, with_sums_off

SHORT = 10_000
"""Numbers of one sign, of the sum of whose products TF32 is off by 190 half ulps, where 130 are right."""
GROSS = 2.0**-8
"""Of the largest element: twice what bf16 is off by. Zeros, the first answer and the like need not be asked about."""
ENOUGH = 4
"""Questions of the problem's own inputs, alike, after which that is no longer asked: it takes twenty float64 answers of
a layer norm, and some forty such answers are looked at."""
# Inputs that are looked at, the largest first, and elements of each that are changed.
INPUTS, DRAWS = 2, 4

# Parts of the names of operations in which torch adds up. An author who adds up by himself, as Kahan did, means the
# order; what is not named here is held to its own error, too.
MEANS = ("avg_pool", "entropy", "index_add", "loss", "mean", "norm", "scatter", "softmax", "std", "sum", "var")
ADDS_UP = PRODUCTS + MEANS

Marked = Callable[[Question, Sequence[Tensor]], Mark]
"""How answers to a question fare by its ruler."""


class OneLoop:
    """The ruler of one loop for a problem's answers.

    A reference that adds up by itself, as Kahan did, has no such ruler: its order is the problem's.
    """

    def __init__(self) -> None:
        self.needed = False
        """Whether an answer was right by it that was not otherwise."""
        self._numbers = 1.0
        """Over how many the loop was by which the last of them was right."""
        self._told = 0
        """Questions of the problem's own inputs of which the longer ruler tells precision."""
        self._most = math.inf
        self._terms: tuple[float, ...] | None = None
        """By output, as `terms_of` has them: nothing where there is no such ruler; None where nobody asked yet."""

    def only_short_unless_needed(self) -> None:
        """From now on no answer is right by it as a sum over more than `SHORT` numbers, if none had to be so far.

        Where no stress is asked among timed calls, who adds up with care while it is checked, and in TF32 where it is
        timed, would be right by it where more numbers of one sign are added up.
        """
        if not self.needed:
            self._most = SHORT

    def passes(
        self,
        question: Question,
        inputs: list[Any],
        tensors: Sequence[Tensor],
        refused: Mark,
        marked: Marked,
        exact_answer: Callable[[list[Any]], list[Tensor]],
    ) -> Mark | None:
        """The mark of an answer that is right by it; None for one that is not.

        `refused`: the mark by its own ruler. `inputs`: those of the question, or of a part of it. `exact_answer`: the
        float64 answers to inputs.
        """

        def ruler(asked: Question) -> Question | None:
            # Most wrong answers are wrong by the longest loop, too: for them the reference is not asked nine times.
            if not _is_right(marked(_of_one_loop(asked, [math.inf] * len(asked.names)), tensors)):
                return None
            if self._terms is None:
                self._terms = terms_of(inputs, exact_answer)
            terms = [n if n <= self._most else 1.0 for n in self._terms]
            return _of_one_loop(asked, terms) if terms else asked

        def tells_precision(longer: Question, shorter: Question) -> bool:
            """Whether no answer in lower precision is right by the longer alone."""
            if question.ruler is None and self._told >= ENOUGH:
                return True
            try:
                for one in coarse_answers(question, exact_answer):
                    if _is_right(marked(longer, one)) and not _is_right(marked(shorter, one)):
                        return False
            except FAULTS:
                return False
            self._told += question.ruler is None
            return True

        plain = ruler(question)
        if plain and _is_right(mark := marked(plain, tensors)):
            return self._passed(mark, 1.0)
        if _is_gross(question, refused):
            return None
        if off := with_sums_off(question, self._most, exact_answer):
            longer = ruler(off[1])
            if longer and _is_right(mark := marked(longer, tensors)) and tells_precision(longer, plain or question):
                return self._passed(mark, off[0])
        return None

    def _passed(self, mark: Mark, numbers: float) -> Mark:
        self.needed, self._numbers = True, max([numbers, *(self._terms or ())])
        return mark

    def evidence(self) -> str:
        """Why an answer that needed it is right, in words."""
        return (
            f"right as one loop over {self._numbers:.0f} numbers is, if each sum is rounded to fp32; the"
            " reference's own error, multiplied as the problem allows, is less"
        )


def _is_gross(question: Question, refused: Mark) -> bool:
    """Whether it is farther off than any ruler may be long: halves are right by one that allows so much."""
    if not refused.errors:
        return False
    failed, place = refused.errors[-1], len(refused.errors) - 1  # those before it were right
    if not question.honest[place].is_floating_point():
        return False
    return failed.max_abs is None or failed.max_abs > GROSS * largest(question.reference[place])


def _is_right(mark: Mark) -> bool:
    return mark.status is Status.PASSED


def _of_one_loop(question: Question, terms: Sequence[float]) -> Question:
    held = zip(question.honest, terms, strict=True)
    return replace(
        question, rounding=tuple(rounding(own.dtype, n) if own.is_floating_point() else 0.0 for own, n in held)
    )


def terms_of(arguments: list[Any], answers_of: Callable[[list[Any]], list[Tensor]]) -> tuple[float, ...]:
    """By output: on how many elements of one input an element of it hangs, on the average.

    Counted from the other end: an element of the input is changed, and what of the answer is another then is counted.
    Nothing where that cannot be told, or where the reference leaves no sum to torch.
    """
    try:
        with _Sums() as torchs:
            before = answers_of(arguments)
        if not torchs.seen:
            return ()
        terms = [1.0] * len(before)
        for chosen in _largest_first(arguments)[:INPUTS]:
            for _ in range(DRAWS):
                for i, (own, other) in enumerate(zip(before, answers_of(_one_changed(arguments, chosen)), strict=True)):
                    if own.shape == other.shape and own.numel():
                        fan_out = int(((own != other) & own.isfinite()).sum())
                        found = fan_out * chosen.numel() / own.numel()
                        terms[i] = max(terms[i], min(found, PARTS) if own.numel() <= FEW else found)
    except FAULTS:
        return ()
    return tuple(terms)


class _Sums(TorchDispatchMode):
    """Whether torch is asked for a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.seen |= is_named(func, ADDS_UP)
        return func(*args, **(kwargs or {}))


def _largest_first(arguments: list[Any]) -> list[Tensor]:
    numbers = [one for one in tensors_of(arguments) if one.is_floating_point() and one.numel() > 1]
    return sorted(numbers, key=lambda one: -one.numel())


def _one_changed(arguments: list[Any], chosen: Tensor) -> list[Any]:
    changed = chosen.clone(memory_format=torch.contiguous_format)
    if (place := nonzero_place(chosen)) is not None:
        changed.view(-1)[place] *= 2
    return with_changed(arguments, chosen, changed)
