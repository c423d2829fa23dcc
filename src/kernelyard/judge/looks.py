"""A look at an answer of a timed call, in two halves.

What only the worker has is taken while it has it: the answer as it stood when the clock stopped, and what became of the
inputs. That disturbs some requests that follow, and where it does both sides are taken from alike: on a CPU the next
call, a softmax on two cores by 0.12 to 1.4 ms, on a GPU the request without flushes. With the solution alone looked at,
those of its 1.19 ms were 0.01 ms a call longer on an H200 than the same code's on the other side. What float64 says of
the answer can wait until the round is over, and the baseline's need not be asked: of a round of 90 ms on an H100, 27
were looks.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kernelyard.judge.checking import inputs_stay, unchanged
from kernelyard.judge.exam import PART_BYTES, Exam
from kernelyard.judge.findings import Findings, accept
from kernelyard.judge.question import Honest, tensors_of
from kernelyard.judge.spots import mark_of
from kernelyard.judge.turns import handed_over
from kernelyard.sandbox.exchange import WentOn
from kernelyard.sandbox.returned import Fetched, Kept
from kernelyard.sandbox.session import Session

Rest = Callable[[], None]
"""What is left of a look when the worker is no longer needed for it. Raises End."""


def nothing() -> None:
    """The rest of a look that is through."""


@dataclass(frozen=True)
class Taken:
    """One call's inputs, what the reference answers to them, and what the worker has handed over."""

    arguments: list[Any]
    honest: Honest
    answer: Fetched
    inputs_stay: bool
    """Whether they are after the call what they were, or may change."""


def take(exam: Exam, session: Session, kept: Kept, arguments: list[Any]) -> Taken:
    """The first half, of one answer of the session's last request."""
    honest = exam.honest(arguments)
    answer = handed_over(session, kept, honest.answers)
    return Taken(arguments, honest, answer, inputs_stay(exam, session, kept.index, arguments))


def judge(exam: Exam, found: Findings, taken: Taken) -> None:
    """The second half. Raises End."""
    arguments, honest, answer = taken.arguments, taken.honest, taken.answer
    unchanged(taken.inputs_stay)
    # Float64 has nothing to say of what is the honest answer itself; of what is small it is asked all the same.
    small = sum(tensor.nbytes for tensor in (*tensors_of(arguments), *honest.answers)) <= PART_BYTES
    if small or not exam.is_honest(honest, answer):
        accept(mark_of(exam, arguments, honest, answer), found)
    found.timed_outputs_checked += 1


def look(exam: Exam, session: Session, found: Findings, kept: Kept, arguments: list[Any]) -> None:
    """Both halves at once. Raises End."""
    judge(exam, found, take(exam, session, kept, arguments))


@contextmanager
def heard_out(rests: list[Rest]) -> Iterator[None]:
    """All that is left of the looks taken meanwhile, of which nothing is kept, is done at the end; where somebody ran
    in another's turn, too, for what was timed is left out then, and not what was answered. Raises End."""
    try:
        yield
    except WentOn:
        _finish(rests)
        raise
    _finish(rests)


def _finish(rests: list[Rest]) -> None:
    while rests:
        rests.pop()()
