"""Stressed questions among timed calls, of which no worker knows."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernelyard.judge.checking import accept_answer, inputs_stay, look_at_rows, unchanged, within_memory
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import Findings
from kernelyard.judge.looks import Rest, nothing
from kernelyard.judge.mixed import Mixed, mixed
from kernelyard.judge.plan import Plan
from kernelyard.judge.question import Question
from kernelyard.judge.room import is_ample
from kernelyard.judge.stress import STRESSES, Unfair, stressed
from kernelyard.judge.turns import handed_over
from kernelyard.sandbox.returned import Kept
from kernelyard.sandbox.session import Session


@dataclass(frozen=True)
class Again:
    """A call among timed ones that is under a stress, or some rows of it."""

    arguments: Callable[[], list[Any]]
    look: Callable[[Kept, list[Any]], Rest | None]
    """At the answer, which was kept, to these arguments; None where it could not be looked at so. Raises End."""


def in_turn(again: list[Again]) -> Iterator[Again]:
    """Each of them once, in an order drawn in secret, and then each again, without end."""
    while again:
        yield from random.sample(again, len(again))


def stressed_again(exam: Exam, candidate: Session, plan: Plan, found: Findings, question_bytes: int) -> list[Again]:
    """Under stresses that were passed, in random order, for calls that look like timed ones.

    Who counts calls answers the first fifteen with care, and later leaves out what the problem's own inputs never need:
    a softmax without its maximum passed so, with every timed answer right. Of a large problem rows are under stress,
    anew in every round's fresh inputs, where they have nothing to do with each other.
    """
    names = {record.name for record in found.stresses if record.outcome == "passed"}
    passed = [stress for stress in STRESSES if stress.name in names]
    random.shuffle(passed)
    made: list[Again] = []
    if question_bytes > plan.round_bytes:
        with suppress(Unfair):
            made.append(_some_rows(exam, candidate, mixed(exam, passed), found))
        return made
    begin, ample = time.monotonic(), is_ample(question_bytes, exam.device)
    for stress in passed:
        if made and time.monotonic() - begin > plan.again_seconds:
            break
        with suppress(Unfair):
            question = within_memory(partial(stressed, exam, stress), ample=ample)
            made.append(_whole(exam, candidate, stress.name, question, found))
    return made


def _whole(exam: Exam, candidate: Session, name: str, question: Question, found: Findings) -> Again:
    def look(kept: Kept, _arguments: list[Any]) -> Rest:
        answer = handed_over(candidate, kept, question.honest)
        stay = inputs_stay(exam, candidate, kept.index, question.arguments)

        def rest() -> None:
            accept_answer(exam, exam.mark(question, answer), found, name)
            unchanged(stay)
            found.timed_outputs_checked += 1

        return rest

    return Again(lambda: question.arguments, look)


def _some_rows(exam: Exam, candidate: Session, made: Mixed, found: Findings) -> Again:
    def look(kept: Kept, arguments: list[Any]) -> Rest | None:
        asked = look_at_rows(exam, candidate, kept.index, partial(handed_over, candidate, kept), made, arguments, found)
        found.timed_outputs_checked += bool(asked)
        return nothing if asked else None

    return Again(lambda: made.within(exam.arguments()), look)
