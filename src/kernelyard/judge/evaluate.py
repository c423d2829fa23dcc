"""Judge one stranger's solution to one problem, end to end, from a process that never runs it."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelyard.core.environment import describe
from kernelyard.core.operator import Tolerance
from kernelyard.core.problem import Problem, Source
from kernelyard.core.verdict import ErrorFigures, Flag, Floor, Phase, SandboxRecord, Status, Timing, Verdict, worst_of
from kernelyard.core.workload import dtype_name
from kernelyard.judge.clock import Clock, Side
from kernelyard.judge.exam import Exam, InvalidProblem, Mark, Question
from kernelyard.judge.floor import floor, measure_ceilings
from kernelyard.judge.statistics import paired_ratio
from kernelyard.sandbox.launch import Limits, SandboxError, SandboxKind
from kernelyard.sandbox.session import Deadlines, Ended, Fetched, Session
from kernelyard.sandbox.wire import ProtocolError


@dataclass(frozen=True)
class Plan:
    """How much is asked of a solution."""

    trials: int = 3
    """Fresh inputs checked before anything is timed. A cached first answer fails the second."""
    rounds: int = 9
    """Paired rounds of baseline and solution; the first is a warm-up. Eight ratios give an interval worth its name."""
    patience: int = 3
    """Rounds tried for every round needed, before too many doubtful ones are held against the solution."""
    calls: int = 8
    """Calls a round, each on inputs of its own, as far as `round_bytes` reaches."""
    round_bytes: int = 256 << 20
    """Bytes of inputs made for one round. A problem larger than this gets one call a round."""
    tolerance: Tolerance = Tolerance()


@dataclass
class _Findings:
    """What has been established so far; a verdict is made of it at the end, whatever the end is."""

    phase: Phase = Phase.START
    missing_layers: dict[str, str] = field(default_factory=dict)
    trials: int = 0
    timed_outputs_checked: int = 0
    weights: str | None = None
    errors: tuple[ErrorFigures, ...] = ()
    flags: list[Flag] = field(default_factory=list)
    floor: Floor | None = None
    baseline: Timing | None = None
    time: Timing | None = None
    rounds: list[tuple[float, float]] = field(default_factory=list)


class _End(Exception):
    """The end of the protocol, short of a pass."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def evaluate(
    problem: Problem,
    solution: Source,
    *,
    device: torch.device,
    dtype: torch.dtype,
    sandbox: SandboxKind,
    limits: Limits,
    deadlines: Deadlines = Deadlines(),
    plan: Plan = Plan(),
    on_phase: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """The verdict on `solution`. Baseline and solution run in workers; only the problem runs here."""
    found = _Findings()
    status, message, phase = Status.PASSED, "", None
    try:
        on_phase("starting workers")
        with (
            Session(sandbox, limits, device, deadlines) as candidate,
            Session(sandbox, limits, device, deadlines) as baseline,
        ):
            found.missing_layers = candidate.process.missing
            _examine(problem, solution, candidate, baseline, plan, device, dtype, found, on_phase)
    except (InvalidProblem, ProtocolError) as error:
        # Of the protocol, only what cannot cross to a worker gets here: the problem's own arguments.
        status, message, phase = Status.INVALID_PROBLEM, str(error), None
    except SandboxError as error:
        status, message, phase = Status.INFRA_ERROR, str(error), found.phase
    except _End as end:
        status, message, phase = end.status, end.message, found.phase
    except Ended as end:
        status, message, phase = end.status, end.message, end.phase

    passed = status is Status.PASSED
    ratio = paired_ratio(*zip(*found.rounds, strict=True)) if passed else None
    return Verdict(
        status=status,
        phase=phase,
        message=message,
        problem=problem.source.path.name,
        problem_sha256=problem.source.sha256,
        solution=solution.path.name,
        solution_sha256=solution.sha256,
        dtype=dtype_name(dtype),
        trials=found.trials,
        timed_outputs_checked=found.timed_outputs_checked,
        weights=found.weights,
        errors=found.errors,
        baseline=found.baseline if passed else None,
        time=found.time if passed else None,
        speedup=ratio.mean if ratio else None,
        speedup_low=ratio.low if ratio else None,
        speedup_high=ratio.high if ratio else None,
        floor=found.floor,
        percent_of_floor=100 * found.floor.floor_ms / found.time.p50_ms
        if passed and found.floor and found.time
        else None,
        flags=tuple(found.flags),
        sandbox=SandboxRecord(kind=sandbox.value, missing=found.missing_layers),
        environment=describe(device),
    )


def _examine(
    problem: Problem,
    solution: Source,
    candidate: Session,
    baseline: Session,
    plan: Plan,
    device: torch.device,
    dtype: torch.dtype,
    found: _Findings,
    on_phase: Callable[[str], None],
) -> None:
    """The whole protocol; returns only for a pass."""
    exam = Exam(problem, dtype, device, plan.tolerance)
    first = exam.question()
    for session in (candidate, baseline):
        session.await_start()

    found.phase = Phase.LOAD
    on_phase("loading the solution")
    state = exam.model.state_dict()
    found.weights = candidate.load(
        solution.path.name, solution.text, "ModelNew", exam.init_arguments, exam.weight_seed, dtype, state
    )

    found.phase = candidate.phase = Phase.CHECK
    on_phase("checking")
    cost = exam.cost(first)
    first_answer = first.honest
    input_bytes = sum(tensor.numel() * tensor.element_size() for tensor in first.pristine())
    _check(exam, candidate, first, found)
    # Outputs of gigabytes are common, with a float64 reference of twice that beside: one question lives at a time.
    del first
    for trial in range(1, plan.trials):
        question = exam.question()
        _ask(exam, candidate, question, found)
        if trial == 1 and (reason := exam.degenerate(question, first_answer)):
            found.flags.append(Flag(name="degenerate_problem", evidence=reason))
        del question
    del first_answer

    found.phase = candidate.phase = Phase.TIME
    on_phase("measuring ceilings")
    with _blameless():
        baseline.load(
            problem.source.path.name,
            problem.source.text,
            "Model",
            exam.init_arguments,
            exam.weight_seed,
            dtype,
            state,
        )
    baseline.phase = Phase.TIME
    ceilings = measure_ceilings(device, dtype_name(dtype), matrix=cost.matrix)
    found.floor = floor(cost, ceilings)
    _time(exam, candidate, baseline, plan, found, input_bytes, on_phase)


def _ask(exam: Exam, candidate: Session, question: Question, found: _Findings) -> Fetched:
    """One call on one question, held against what is expected."""
    _make_room(exam.device)
    candidate.stage([question.arguments])
    candidate.run(1)
    fetched = candidate.fetch(0, question.honest)
    found.trials += 1
    _accept(exam.mark(question, fetched), found)
    return fetched


def _check(exam: Exam, candidate: Session, question: Question, found: _Findings) -> None:
    """The first trial: also for side effects and repeatability."""
    answer = _ask(exam, candidate, question, found)
    pristine = question.pristine()
    after = candidate.fetch(0, pristine, "inputs")
    if after.tensors is None or not all(torch.equal(a, b) for a, b in zip(after.tensors, pristine, strict=True)):
        raise _End(Status.INPUT_MUTATED, "an input is not what it was before the call")
    del after

    candidate.stage([question.arguments])
    candidate.run(1)
    again = candidate.fetch(0, question.honest)
    if (mark := exam.mark(question, again)).status is not Status.PASSED:
        raise _End(Status.NONDETERMINISTIC, f"the second call on the same input is wrong: {mark.message}")
    pairs = zip(answer.tensors or (), again.tensors or (), strict=True)
    if not all(torch.equal(first, second) for first, second in pairs):
        found.flags.append(Flag(name="bits_differ", evidence="two calls on the same input differ within the tolerance"))


def _accept(mark: Mark, found: _Findings) -> None:
    """Keep the worst errors seen; anything but a pass is the end."""
    if mark.errors and (
        not found.errors or mark.status is not Status.PASSED or _worst(mark.errors) > _worst(found.errors)
    ):
        found.errors = mark.errors
    if mark.status is not Status.PASSED:
        raise _End(mark.status, mark.report or mark.message)


def _worst(errors: tuple[ErrorFigures, ...]) -> float:
    worst = worst_of(errors)
    return worst.over_honest or 0.0 if worst else 0.0


def _time(
    exam: Exam,
    candidate: Session,
    baseline: Session,
    plan: Plan,
    found: _Findings,
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
            with nullcontext() if session is candidate else _blameless():
                sides[session] = _run(session, sets)
        if i_round:
            clock.add(sides[baseline], sides[candidate])
        chosen = random.randrange(calls)
        question = exam.question(sets[chosen])
        _accept(exam.mark(question, candidate.fetch(chosen, question.honest)), found)
        found.timed_outputs_checked += 1
        del question, sets
        if len(clock.counted()) == needed:
            break
    else:
        found.flags.append(clock.doubt())
        raise _End(Status.REJECTED, f"{found.flags[-1].name}: {found.flags[-1].evidence}")

    found.baseline, found.time = clock.timing(0), clock.timing(1)
    found.rounds = clock.medians()
    if found.floor and found.time.p50_ms < found.floor.impossible_ms:
        least = found.floor.impossible_ms
        evidence = f"{found.time.p50_ms:.4g} ms a call, but no honest call takes less than {least:.4g} ms"
        found.flags.append(Flag(name="under_the_floor", evidence=evidence))
        raise _End(Status.REJECTED, f"under_the_floor: {evidence}")


def _run(session: Session, sets: list[list[Any]]) -> Side:
    """One side of a round."""
    _make_room(session.device)
    session.stage(sets)
    samples = session.run(len(sets))
    return Side.of(samples, session.run_seconds)


@contextmanager
def _blameless() -> Iterator[None]:
    """What goes wrong in the baseline's worker is not the solution's fault."""
    try:
        yield
    except Ended as end:
        raise _End(Status.INFRA_ERROR, f"the baseline's worker failed: {end.message}") from end


def _make_room(device: torch.device) -> None:
    """Give back the memory that this process's allocator keeps for itself: the workers share the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
