"""Judge one stranger's solution to one problem, end to end, from a process that never runs it."""

from collections.abc import Callable

import torch

from kernelyard.core.environment import describe
from kernelyard.core.policy import Policy
from kernelyard.core.problem import Problem, Source
from kernelyard.core.verdict import Flag, Phase, SandboxRecord, Status, Verdict
from kernelyard.core.workload import dtype_name
from kernelyard.judge.checking import ask, check
from kernelyard.judge.exam import Exam, InvalidProblem
from kernelyard.judge.findings import End, Findings, blameless
from kernelyard.judge.floor import floor, measure_ceilings
from kernelyard.judge.plan import Plan
from kernelyard.judge.rounds import time_rounds
from kernelyard.judge.statistics import paired_ratio
from kernelyard.sandbox.launch import Limits, SandboxError, SandboxKind
from kernelyard.sandbox.session import Deadlines, Ended, Session
from kernelyard.sandbox.wire import ProtocolError


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
    policy: Policy = Policy.STRICT,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """The verdict on `solution`. Baseline and solution run in workers; only the problem runs here."""
    found = Findings(policy=policy)
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
    except End as end:
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
        policy=policy,
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
    found: Findings,
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
    check(exam, candidate, first, found)
    # Outputs of gigabytes are common, with a float64 reference of twice that beside: one question lives at a time.
    del first
    for trial in range(1, plan.trials):
        question = exam.question()
        ask(exam, candidate, question, found)
        if trial == 1 and (reason := exam.degenerate(question, first_answer)):
            found.flag(Flag(name="degenerate_problem", evidence=reason))
        del question
    del first_answer

    found.phase = candidate.phase = Phase.TIME
    on_phase("measuring ceilings")
    with blameless():
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
    time_rounds(exam, candidate, baseline, plan, found, input_bytes, on_phase)
