"""A look at an answer of gigabytes, or one that float64 is slow to give: float64 of a quarter of its parts, drawn in
secret, and the rest by the honest one.

Of KernelBench's 13 GB some forty answers of a verdict are looked at, and float64 of all of each was 5 s of its 12 on an
H200. What the quarter says of the honest answer's error bounds how far the rest may be from the honest answer. Nobody
is refused by that: where it does not pass, the whole is asked.
"""

import secrets
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from kernelyard.core.verdict import Status
from kernelyard.judge.contract import Mark, breach
from kernelyard.judge.exam import PART_BYTES, Exam
from kernelyard.judge.parts import largest, rows_of
from kernelyard.judge.question import Honest, Question
from kernelyard.sandbox.returned import Fetched

SHARE = 4
"""One part in so many, and one at least. Of 26 parts, one that is imprecise in every call is in no drawing of forty
looks in 3 of 10^5 verdicts."""
FEWEST = 8
"""Parts at least, where there are as many rows."""
SLOW_SECONDS = 0.003
"""What float64 of a whole question takes, of parts of which it is worth being asked. Of KernelBench's 2/74, 16 rows in
7 ms on an H100, forty looks were 0.3 of 2.3 s that the judge adds."""


def spots_of(exam: Exam, question: Question) -> tuple[int, int] | None:
    """Rows of the first question, and how many of them a part has of which float64 is to be asked; None where the whole
    is, since rows have to do with each other or float64 is quick."""
    rows = rows_of(question.arguments, question.honest)
    if rows is None:
        return None
    if exam.parted:
        return rows, min(exam.parted[1], max(1, rows // FEWEST))
    parts = rows, max(1, rows // FEWEST)
    if question.bytes > PART_BYTES // 2 or not exam.parts_agree(question, parts):
        return None
    _, first = next(exam.pieces(question.arguments, parts))  # the last may be shorter
    begin = time.monotonic()
    for answer in exam.exact_piece(first):
        largest(answer)  # for which a device is waited for
    return parts if (time.monotonic() - begin) * rows / parts[1] > SLOW_SECONDS else None


def mark_of(exam: Exam, arguments: list[object], honest: Honest, fetched: Fetched) -> Mark:
    """By parts where that passes it, else by the whole."""
    return spot_mark(exam, arguments, honest, fetched) or exam.mark(exam.question(arguments, honest), fetched)


def spot_mark(exam: Exam, arguments: list[object], honest: Honest, fetched: Fetched) -> Mark | None:
    """A pass, with the errors of the parts that were drawn; None for all else."""
    if not exam.spots or any(map(exam.problem.may_be_nonfinite, honest.names)) or breach(honest, fetched):
        return None
    parts = list(exam.pieces(arguments, exam.spots))
    drawn = set(secrets.SystemRandom().sample(range(len(parts)), max(1, len(parts) // SHARE)))
    places = [parts[i][0] for i in sorted(drawn)]
    rest = [place for i, (place, _) in enumerate(parts) if i not in drawn]
    answers = fetched.tensors or ()
    try:
        reference = exam.exact_parts([parts[i][1] for i in sorted(drawn)])
        held = [torch.cat([answer[place] for place in places]) for answer in honest.answers]
        if not exam.is_usual(held, reference):
            return None
        mark = exam.mark_values(
            Question(arguments, honest.names, tuple(reference), tuple(held), honest.forms),
            [torch.cat([answer[place] for place in places]) for answer in answers],
        )
        if mark.status is not Status.PASSED:
            return None
        bounds = [
            one.honest_max_abs + one.allowed * max(one.honest_max_abs, noise)
            for one, noise in zip(mark.errors, exam.noise, strict=True)
        ]
        return mark if _within(answers, honest.answers, rest, bounds) else None
    except RuntimeError:
        return None  # no room: what is computed as a whole may go to the host


def _within(answers: Sequence[Tensor], honest: Sequence[Tensor], places: Sequence[object], bounds: list[float]) -> bool:
    """Whether all elements there are as near to the honest ones as both may be to float64's."""
    held = zip(answers, honest, bounds, strict=True)
    return all(_apart(got[place], own[place]) <= bound for got, own, bound in held for place in places)  # type: ignore[index]


def _apart(got: Tensor, own: Tensor) -> float:
    """A NaN where there is one, which is within no bound."""
    if not got.is_floating_point():
        return 0.0 if torch.equal(got, own) else float("inf")
    return largest(got - own)
