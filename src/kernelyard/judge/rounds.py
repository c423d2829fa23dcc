"""The timing of one solution against its baseline: paired rounds whose outputs are checked afterwards."""

import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from kernelyard.core.verdict import Flag
from kernelyard.judge.clock import Clock, Side
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import Findings, accept, blameless, make_room
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.session import Session


def time_rounds(
    exam: Exam,
    candidate: Session,
    baseline: Session,
    plan: Plan,
    found: Findings,
    input_bytes: int,
    on_phase: Callable[[str], None],
) -> None:
    """Paired rounds in random order on fresh inputs; one output of each round, chosen afterwards, is checked."""
    calls = max(1, min(plan.calls, plan.round_bytes // max(input_bytes, 1)))
    clock = Clock(candidate.device)
    needed = plan.rounds - 1
    for i_round in range(1 + needed * plan.patience):
        on_phase(f"timing round {i_round + 1}, {len(clock.counted())} of {needed} done")
        sets = [exam.arguments() for _ in range(calls)]
        sides: dict[Session, Side] = {}
        for session in random.sample([candidate, baseline], 2):
            with nullcontext() if session is candidate else blameless():
                sides[session] = _run(session, sets)
        if i_round:
            clock.add(sides[baseline], sides[candidate])
        chosen = random.randrange(calls)
        question = exam.question(sets[chosen])
        accept(exam.mark(question, candidate.fetch(chosen, question.honest)), found)
        found.timed_outputs_checked += 1
        del question, sets
        if len(clock.counted()) == needed:
            break
    else:
        found.flag(clock.doubt())

    found.baseline, found.time = clock.timing(0), clock.timing(1)
    found.rounds = clock.medians()
    if found.floor and found.time.p50_ms < found.floor.impossible_ms:
        least = found.floor.impossible_ms
        evidence = f"{found.time.p50_ms:.4g} ms a call, but no honest call takes less than {least:.4g} ms"
        found.flag(Flag(name="under_the_floor", evidence=evidence))


def _run(session: Session, sets: list[list[Any]]) -> Side:
    """One side of a round."""
    make_room(session.device)
    session.stage(sets)
    samples = session.run(len(sets))
    return Side.of(samples, session.run_seconds)
