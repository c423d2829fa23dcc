"""The checks of one solution before anything is timed: fresh questions, side effects, repeatability."""

import torch

from kernelyard.core.verdict import Flag, Status
from kernelyard.judge.exam import Exam, Question
from kernelyard.judge.findings import End, Findings, accept, make_room
from kernelyard.sandbox.session import Fetched, Session


def ask(exam: Exam, candidate: Session, question: Question, found: Findings) -> Fetched:
    """One call on one question, held against what is expected."""
    make_room(exam.device)
    candidate.stage([question.arguments])
    candidate.run(1)
    fetched = candidate.fetch(0, question.honest)
    found.trials += 1
    accept(exam.mark(question, fetched), found)
    return fetched


def check(exam: Exam, candidate: Session, question: Question, found: Findings) -> None:
    """The first trial: also for side effects and repeatability."""
    answer = ask(exam, candidate, question, found)
    pristine = question.pristine()
    after = candidate.fetch(0, pristine, "inputs")
    if after.tensors is None or not all(torch.equal(a, b) for a, b in zip(after.tensors, pristine, strict=True)):
        raise End(Status.INPUT_MUTATED, "an input is not what it was before the call")
    del after

    candidate.stage([question.arguments])
    candidate.run(1)
    again = candidate.fetch(0, question.honest)
    if (mark := exam.mark(question, again)).status is not Status.PASSED:
        raise End(Status.NONDETERMINISTIC, f"the second call on the same input is wrong: {mark.message}")
    pairs = zip(answer.tensors or (), again.tensors or (), strict=True)
    if not all(torch.equal(first, second) for first, second in pairs):
        found.flag(Flag(name="bits_differ", evidence="two calls on the same input differ within the tolerance"))
