"""The timing of one solution against its baseline: paired rounds whose outputs are checked afterwards."""

import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from kernelyard.core.verdict import Flag
from kernelyard.judge import outside
from kernelyard.judge.checking import untouched
from kernelyard.judge.clock import Clock, Round, Side
from kernelyard.judge.decision import noise_floor, settled
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
    """Rounds until the interval is narrow enough or the budget ends; then what the outside clock says."""
    calls = max(1, min(plan.calls, plan.round_bytes // max(input_bytes, 1)))
    clock = _rounds(exam, candidate, baseline, plan, calls, found, on_phase)
    on_phase("the judge's own clock")
    _outside(exam, candidate, baseline, plan, calls, found)

    found.baseline, found.time = clock.baseline(), clock.solution()
    found.ratio, found.noise = clock.ratio(), noise_floor(clock.control())
    found.rounds = len(clock.counted())
    if found.floor and found.time.p50_ms < found.floor.impossible_ms:
        least = found.floor.impossible_ms
        evidence = f"{found.time.p50_ms:.4g} ms a call, but no honest call takes less than {least:.4g} ms"
        found.flag(Flag(name="under_the_floor", evidence=evidence))


def _rounds(
    exam: Exam,
    candidate: Session,
    baseline: Session,
    plan: Plan,
    calls: int,
    found: Findings,
    on_phase: Callable[[str], None],
) -> Clock:
    """Baseline twice and solution once in random order on fresh inputs; one output of each round is checked."""
    clock = Clock(candidate.device)
    needed = plan.rounds - 1
    begin = time.monotonic()
    tried = 0
    while True:
        on_phase(f"timing round {tried + 1}, {len(clock.counted())} of {needed} done")
        sets = [exam.arguments() for _ in range(calls)]
        sides: dict[str, Side] = {}
        for name in random.sample(["baseline", "control", "solution"], 3):
            session = candidate if name == "solution" else baseline
            with nullcontext() if session is candidate else blameless():
                sides[name] = _run(session, sets)
        if tried:
            clock.add(Round(**sides))
        tried += 1
        chosen = random.randrange(calls)
        question = exam.question(sets[chosen])
        # Only the solution's last run is still there to be fetched: the baseline has a worker of its own.
        accept(exam.mark(question, candidate.fetch(chosen, question.honest)), found)
        untouched(candidate, chosen, question)
        found.timed_outputs_checked += 1
        del question, sets
        counted = len(clock.counted())
        if counted < needed:
            if tried > needed * plan.patience:
                found.flag(clock.doubt())
            continue
        spent = time.monotonic() - begin >= plan.seconds or counted >= plan.most_rounds
        if spent or settled(clock.ratio(), noise_floor(clock.control())):
            return clock


def _outside(exam: Exam, candidate: Session, baseline: Session, plan: Plan, calls: int, found: Findings) -> None:
    """Hold the worker's account against the judge's clock; looked at again before a solution is refused."""
    for i_try in range(plan.patience):
        sets = [exam.arguments() for _ in range(max(2, calls))]
        make_room(exam.device)
        with blameless():
            honest = outside.measure(baseline, sets, plan.outside_repeats)
        own = outside.measure(candidate, sets, plan.outside_repeats)
        flag = outside.doubt(honest, own, exam.device)
        if flag is None or i_try == plan.patience - 1:
            break
    if flag is not None:
        found.flag(flag)
    found.host_baseline, found.host_time = honest.timing(), own.timing()


def _run(session: Session, sets: list[list[Any]]) -> Side:
    """One side of a round."""
    make_room(session.device)
    session.stage(sets)
    samples = session.run(len(sets))
    return Side.of(samples, session.run_seconds)
