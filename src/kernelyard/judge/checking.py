"""The checks of one solution before anything is timed: fresh questions, stressed ones, side effects, repeatability."""

import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from kernelyard.core.verdict import Flag, Status, StressRecord
from kernelyard.judge.compare import fingerprint, same_bits
from kernelyard.judge.contract import Mark, breach
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import End, Findings, accept
from kernelyard.judge.mixed import Mixed, mixed
from kernelyard.judge.plan import Plan
from kernelyard.judge.question import Question, bytes_of, tensors_of
from kernelyard.judge.reference import InvalidProblem
from kernelyard.judge.room import holds_stressed, is_ample, leaves_some, make_room
from kernelyard.judge.size import NO_ROOM
from kernelyard.judge.spots import mark_of
from kernelyard.judge.stress import ONE_ELEMENT, SIGNS, STRESSES, WEIGHTS, Stress, Unfair, one_changed, stressed
from kernelyard.judge.turns import handed_over
from kernelyard.sandbox.returned import Fetched
from kernelyard.sandbox.session import Session
from kernelyard.sandbox.wire import Manner

Made = TypeVar("Made")

TWO_ALIVE = "two_alive"
LATE = "amid_other_work"
UNORDERED = "called while its inputs were being written, and read at once, as if on a stream that nobody joins"
LATE_CALLS = 2
REDRAWN = "(weights that the constructor makes constant were redrawn, and loaded with load_state_dict)"
ENLARGED = "(weights of {} layers were enlarged, lest inputs fade, and loaded with load_state_dict)"


def ask(
    exam: Exam, candidate: Session, question: Question, found: Findings, stress: str = "", *, again: bool = False
) -> list[int]:
    """One call on one question, held against what is expected; its inputs have to stay what they are.

    `again`: it is asked again, and returned are the answer's fingerprints: of 8 GB a device has no room for what became
    of the inputs beside it.
    """
    make_room(exam.device, roomy=candidate.lender.roomy)
    candidate.run([question.arguments])
    fetched = candidate.fetch(0, question.honest)
    found.trials += not stress
    mark = exam.mark(question, fetched)
    answered = _fingerprints(fetched) if again else []
    del fetched
    # First: an answer that lies in its input is right there, and wrong to have changed it.
    untouched(exam, candidate, 0, question.arguments)
    accept_answer(exam, mark, found, stress)
    return answered


def settle_weights(exam: Exam, first: Question, found: Findings) -> Question:
    """The first question, with the weights that the solution has.

    Redrawn constants reach a solution by its state_dict alone; one with other names has the constructor's, and then
    nothing tells whether it reads them. Raises End where the policy refuses that.
    """
    if exam.has_own_weights and found.weights != "state_dict":
        names = ", ".join(list(exam.constants or exam.model.state_dict())[:3])
        evidence = (
            f"its state_dict lacks {names}, or one in that shape: they stay as the constructor has them, and an answer"
            " without them is right"
        )
        found.flag(Flag(name="weights_not_taken", evidence=evidence))
        exam.restore_weights("the solution's state_dict has other names or shapes")
        first = exam.question(first.arguments)
        exam.know(first)
    return first


def check(exam: Exam, candidate: Session, question: Question, found: Findings) -> list[int]:
    """The first trial, asked twice; the second answer's fingerprints."""
    answered = ask(exam, candidate, question, found, again=True)
    candidate.run([question.arguments])
    again = candidate.fetch(0, question.honest)
    if (mark := exam.mark(question, again)).status is not Status.PASSED:
        raise End(Status.NONDETERMINISTIC, f"the second call on the same input is wrong: {mark.message}")
    once_more = _fingerprints(again)
    if once_more != answered:
        found.flag(Flag(name="bits_differ", evidence="two calls on the same input differ within the tolerance"))
    return once_more


def _fingerprints(answer: Fetched) -> list[int]:
    return list(map(fingerprint, answer.tensors or ()))


def check_pair(
    exam: Exam, candidate: Session, first: Question, answered: list[int], plan: Plan, found: Findings
) -> None:
    """Two answers alive at once: to the first question and, where that is fair, to it with one element changed.

    Both are fetched after both calls, so a solution that answers into the same memory twice has spoilt the first. Of a
    large question there is one, whose last answer has the fingerprints `answered`, and some other inputs.
    """
    if first.bytes > plan.round_bytes:
        found.stresses.append(_skipped(ONE_ELEMENT, "too large to hold two questions"))
        found.stresses.append(_held_meanwhile(exam, candidate, first, answered))
        return
    try:
        second = within_memory(partial(one_changed, exam, first), ample=is_ample(first.bytes, exam.device))
        changed = ONE_ELEMENT
    except Unfair as reason:
        found.stresses.append(_skipped(ONE_ELEMENT, str(reason)))
        second, changed = exam.question(), TWO_ALIVE
    make_room(exam.device, roomy=candidate.lender.roomy)
    candidate.run([first.arguments, second.arguments])
    answers = [candidate.fetch(i, question.honest) for i, question in enumerate((first, second))]
    for i, question in enumerate((first, second)):
        untouched(exam, candidate, i, question.arguments)
    # The second first: it alone tells an element that was not read from memory that was written twice.
    accept_answer(exam, exam.mark(second, answers[1]), found, changed)
    accept_answer(exam, exam.mark(first, answers[0]), found, TWO_ALIVE)
    found.stresses += [StressRecord(name=name, outcome="passed") for name in dict.fromkeys((changed, TWO_ALIVE))]
    candidate.hold(0)
    found.held = answers[0].tensors or ()


def _held_meanwhile(exam: Exam, candidate: Session, first: Question, answered: list[int]) -> StressRecord:
    """The last answer to `first`, held while other inputs are answered. Raises End where it changed meanwhile."""
    make_room(exam.device, roomy=candidate.lender.roomy)
    # For those inputs, their answer, and the one that is held.
    if exam.device.type == "cuda" and not leaves_some(first.bytes + bytes_of([], first.honest), exam.device):
        return _skipped(TWO_ALIVE, "too large to hold two answers")
    if any(form.memory_of for form in first.forms):
        # Large inputs are used where they lie, and the next ones are written there.
        return _skipped(TWO_ALIVE, "an answer may lie in an input")
    candidate.hold(0)
    candidate.run([exam.arguments()])
    held = _fingerprints(candidate.fetch(0, first.honest, "held"))
    candidate.hold(None)
    if held != answered:
        raise End(Status.INCORRECT_VALUE, "an answer that was still held changed: the next one lies in its memory")
    return StressRecord(name=TWO_ALIVE, outcome="passed")


def check_held(candidate: Session, found: Findings) -> None:
    """The first answer of the pair, after all other calls. Raises End where it is no longer what it was.

    Two answers alive at once are right of whoever answers into sixty-four buffers in turn, and allocates nothing.
    """
    if not found.held:
        return
    now = candidate.fetch(0, found.held, "held").tensors or ()
    if len(now) != len(found.held) or not all(map(same_bits, now, found.held)):
        raise End(Status.INCORRECT_VALUE, "an answer that was still held changed: later ones lie in its memory")


def check_order(exam: Exam, candidate: Session, plan: Plan, found: Findings, question_bytes: int) -> None:
    """Requests on a device in the middle of other work. Raises End for an answer that came out of order."""
    if candidate.device.type == "cpu":
        found.stresses.append(_skipped(LATE, "a CPU has no streams"))
    elif question_bytes > plan.round_bytes:
        found.stresses.append(_skipped(LATE, "the problem is large"))
    else:
        for _ in range(LATE_CALLS):
            call_late(exam, candidate, plan.calls_in_turn(question_bytes))
        found.stresses.append(StressRecord(name=LATE, outcome="passed"))


def call_late(exam: Exam, candidate: Session, calls: int) -> None:
    """A request on a device in the middle of other work, as in a model.

    Inputs are still being written, and answers are read at once. A stream of the solution's own that does not wait for
    the current one finds what stood there before, and what nobody waits for is not yet written. By the clock alone, a
    softmax hidden so was 2.8x the baseline's speed on an H200; what is hidden of a large problem the clocks show.
    """
    arguments = exam.arguments()
    honest = exam.honest(arguments)
    make_room(exam.device, roomy=candidate.lender.roomy)
    # Of up to `calls`, the last is looked at: who joins his streams after a pause alone does so in the first.
    before = [exam.arguments() for _ in range(secrets.randbelow(calls))]
    candidate.lend(honest.answers, len(before) + 1)
    (kept,) = candidate.run([*before, arguments], manner=Manner.LATE, keep=[len(before)]).kept
    mark = mark_of(exam, arguments, honest, handed_over(candidate, kept, honest.answers))
    if mark.status is not Status.PASSED:
        raise End(mark.status, f"{UNORDERED}: {mark.report or mark.message}")


def check_stresses(
    exam: Exam,
    candidate: Session,
    plan: Plan,
    found: Findings,
    question_bytes: int,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Stressed questions in random order, as many as the problem's size, the judge's time and the device allow, and
    rows under the others; `meanwhile` is called before each."""
    most = len(STRESSES) if question_bytes <= plan.round_bytes else plan.large_stresses
    if exam.parted and not holds_stressed(question_bytes, exam.device):
        most = 0  # all are asked of some rows
    weights = StressRecord(name=WEIGHTS, outcome="passed")
    found.stresses.append(weights if exam.has_own_weights else _skipped(WEIGHTS, exam.why_constant))
    asked, spent = 0, 0.0
    in_order = random.sample(STRESSES, len(STRESSES))
    if exam.one_loop.needed:
        # Of numbers of one sign what a loop is off by is as much as TF32 is: where signs differ it is not.
        in_order.sort(key=lambda stress: stress.name != SIGNS)
    left: list[Stress] = []
    ample = is_ample(question_bytes, exam.device)
    for stress in in_order:
        if asked >= most or spent > plan.stress_seconds:
            left.append(stress)
            continue
        meanwhile()
        make_room(exam.device, roomy=candidate.lender.roomy)
        begin = time.monotonic()
        try:
            question = within_memory(partial(stressed, exam, stress), ample=ample)
        except Unfair as reason:
            if exam.parted and str(reason) == NO_ROOM:
                left.append(stress)
                continue
            found.stresses.append(_skipped(stress.name, str(reason)))
            continue
        finally:
            # Only the judge's own work counts: a solution that is slow is not asked less.
            spent += time.monotonic() - begin
        ask(exam, candidate, question, found, stress.name)
        asked += 1
        found.stresses.append(StressRecord(name=stress.name, outcome="passed"))
        del question
    meanwhile()
    in_rows = _check_mixed(exam, candidate, left, found) if left else set()
    why = "the problem is large" if asked >= most else "the judge's time is spent"
    for name in (stress.name for stress in left):
        found.stresses.append(StressRecord(name=name, outcome="passed") if name in in_rows else _skipped(name, why))


def _check_mixed(exam: Exam, candidate: Session, stresses: list[Stress], found: Findings) -> set[str]:
    """One call with rows under each of these; the names of those that were asked so."""
    make_room(exam.device, roomy=candidate.lender.roomy)
    try:
        made = mixed(exam, stresses)  # for which there has to be room: it takes no more than the next question
    except Unfair:
        return set()
    arguments = made.within(exam.arguments())
    candidate.run([arguments])
    return look_at_rows(exam, candidate, 0, partial(candidate.fetch, 0), made, arguments, found)


def look_at_rows(
    exam: Exam,
    candidate: Session,
    index: int,
    fetch: Callable[[Sequence[Tensor]], Fetched],
    made: Mixed,
    arguments: list[Any],
    found: Findings,
) -> set[str]:
    """Check the rows under stress of one call's answer; under which they are. Raises End."""
    try:
        honest = exam.honest(arguments)
    except InvalidProblem:
        return set()  # rows that need each other after all
    answer = fetch(honest.answers)
    untouched(exam, candidate, index, arguments)
    if broken := breach(honest, answer):
        accept_answer(exam, broken, found, "")
    asked = set()
    for one in made.parts:
        # Rows that had nothing to do with each other in the first question may have in this one.
        if exam.mark_values(one.question, one.of(honest.answers)).status is Status.PASSED:
            accept_answer(exam, exam.mark_values(one.question, one.of(answer.tensors or ())), found, one.stress)
            asked.add(one.stress)
    return asked


def untouched(exam: Exam, candidate: Session, index: int, arguments: list[Any]) -> None:
    """Raises End where an input of a call of the last run is not what it was, and may not be."""
    unchanged(inputs_stay(exam, candidate, index, arguments))


def inputs_stay(exam: Exam, candidate: Session, index: int, arguments: list[Any]) -> bool:
    """Whether the inputs of a call of the last run are what they were, or may change."""
    return exam.problem.in_place or candidate.inputs_are(index, tensors_of(arguments), same_bits)


def unchanged(inputs_stay: bool) -> None:
    """Raises End where inputs did not stay what they were."""
    if not inputs_stay:
        raise End(Status.INPUT_MUTATED, "an input is not what it was before the call")


def accept_answer(exam: Exam, mark: Mark, found: Findings, stress: str) -> None:
    """Raises End for a mark that is no pass, with the stress, if any, that it failed under."""
    if mark.status is not Status.PASSED and stress:
        found.stresses = [record for record in found.stresses if record.name != stress]  # passed, when it was checked
        found.stresses.append(StressRecord(name=stress, outcome="failed", reason=mark.message))
        mark = replace(mark, report=f"under the stress {stress!r}: {mark.report or mark.message}")
    if mark.status is not Status.PASSED and exam.has_own_weights:
        changes = [REDRAWN] * bool(exam.constants) + [ENLARGED.format(len(exam.gain.by))] * bool(exam.gain.by)
        mark = replace(mark, report="\n".join((mark.report or mark.message, *changes)))
    accept(mark, found)


def within_memory(make: Callable[[], Made], *, ample: bool = False) -> Made:
    """What `make` makes. Raises Unfair where the device has no room for it; but not where it is `ample`."""
    try:
        return make()
    except torch.OutOfMemoryError:
        if ample:
            raise
        raise Unfair(NO_ROOM) from None


def _skipped(name: str, reason: str) -> StressRecord:
    return StressRecord(name=name, outcome="skipped", reason=reason)
