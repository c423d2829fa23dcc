"""Inputs moved by as little as rounding moves them, and the ruler that this makes of answers that are few numbers."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kernelyard.core.errors import FAULTS, first_line
from kernelyard.core.problem import each_tensor
from kernelyard.judge.question import Question

FEW = 16
"""Elements of an answer whose honest errors may all be small by chance."""
# Of 30000 means of 1536 normal numbers, added up in another order, 422 were more than eight times as far off as the
# honest one, one was with four errors more, and none with eight (simulated).
SHAKES = 8


def nonzero_place(x: Tensor) -> int | None:
    """Where in `x`, flattened, an element is that is not zero, drawn at random; None where there is little but zeros.

    A zero may be of a triangle that nobody reads.
    """
    flat = x.reshape(-1)
    return next((i for i in (secrets.randbelow(flat.numel()) for _ in range(32)) if flat[i] != 0), None)


def with_changed(arguments: list[Any], chosen: Tensor, changed: Tensor) -> list[Any]:
    """`arguments` with `changed` in place of one of their tensors."""
    return list(each_tensor(arguments, lambda x: changed if x is chosen else x))


class Unsteady(Exception):
    """Inputs moved by an ulp have no answer of the same size; says why."""


def shaken_answer(
    arguments: list[Any],
    like: Sequence[Tensor],
    dtype: torch.dtype,
    exact_answer: Callable[[list[Any]], list[Tensor]],
) -> list[Tensor]:
    """The float64 answer, of the sizes of `like`, to inputs moved by up to an ulp of `dtype`.

    Raises Unsteady: a reference may refuse them, as one above 1 is no probability.
    """
    try:
        answers = exact_answer(_shaken(arguments, dtype))
    except torch.OutOfMemoryError:
        raise
    except FAULTS as error:
        raise Unsteady(f"the reference fails where inputs move by an ulp: {first_line(error)}") from None
    if [answer.shape for answer in answers] != [one.shape for one in like]:
        raise Unsteady("rounding alone decides how large the answer is")
    return answers


def _shaken(value: Any, dtype: torch.dtype) -> Any:
    """Every floating-point input moved by up to one ulp of `dtype`, in float64."""

    def moved(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        noise = torch.rand(x.shape, dtype=torch.float64, device=x.device).mul_(2).sub_(1)
        # In place: of 4 GB in fp32, each step would take 8 more.
        return noise.mul_(torch.finfo(dtype).eps).add_(1).mul_(x)

    return each_tensor(value, moved)


def by_several_errors(
    question: Question, dtype: torch.dtype, exact_answer: Callable[[list[Any]], list[Tensor]]
) -> Question | None:
    """The question with another ruler for answers of `FEW` elements or less; None where it has none, or none is had.

    A sum that cancels is one number, whose honest error is next to nothing in one call of a hundred: who adds up in
    another order is then more than eight times as far off, and of a mean of normal numbers 1 to 1.5 % of calls were
    refused. The ruler is the largest of that error and of those that fp32 makes by rounding what comes in.
    """
    if question.ruler:
        return None
    held = list(zip(question.honest, question.reference, strict=True))
    errors = [(own.to(exact.device).double() - exact).abs_() if _is_few(own) else None for own, exact in held]
    if not any(error is not None for error in errors):
        return None
    finest = min(dtype, torch.float32, key=lambda each: torch.finfo(each).eps)
    for _ in range(SHAKES):
        try:
            answers = shaken_answer(question.arguments, question.reference, finest, exact_answer)
        except Unsteady:
            return None
        for error, answer, exact in zip(errors, answers, question.reference, strict=True):
            if error is not None:
                torch.maximum(error, (answer.to(exact.device) - exact).abs_(), out=error)
    return replace(
        question,
        ruler=tuple(None if error is None else exact + error for error, (_, exact) in zip(errors, held, strict=True)),
    )


def _is_few(answer: Tensor) -> bool:
    return answer.is_floating_point() and 0 < answer.numel() <= FEW
