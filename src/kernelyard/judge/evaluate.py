"""Judge one stranger's solution to one problem, end to end, from a process that never runs it."""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial

import torch

from kernelyard.core.environment import describe
from kernelyard.core.folders import state_folder
from kernelyard.core.policy import Policy
from kernelyard.core.problem import Problem, Source
from kernelyard.core.verdict import Flag, Phase, SandboxRecord, Status, Verdict
from kernelyard.core.workload import dtype_name
from kernelyard.judge import evidence
from kernelyard.judge.checking import ask, check, check_pair, check_stresses, settle_weights
from kernelyard.judge.compiling import Build, compiled
from kernelyard.judge.decision import decide
from kernelyard.judge.exam import Exam, InvalidProblem
from kernelyard.judge.findings import End, Findings, blameless, make_room
from kernelyard.judge.floor import Ceilings, floor, measure_ceilings
from kernelyard.judge.lint import lint
from kernelyard.judge.plan import Plan
from kernelyard.judge.rounds import time_rounds
from kernelyard.judge.sanitizing import sanitized
from kernelyard.sandbox.frames import ProtocolError
from kernelyard.sandbox.health import Ward
from kernelyard.sandbox.launch import Limits, SandboxError, SandboxKind
from kernelyard.sandbox.pool import Pool, Post
from kernelyard.sandbox.session import Deadlines, Ended, Session
from kernelyard.sandbox.turn import NoTurn, turn
from kernelyard.sandbox.witness import standing


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
    policy: Policy = Policy.TRAINING,
    pool: Pool | None = None,
    ward: Ward | None = None,
    build: Build | None = None,
    ceilings: Callable[..., Ceilings] = measure_ceilings,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """The verdict on `solution`. Baseline and solution run in workers; only the problem runs here.

    Workers are taken from `pool`, which must keep ones of this sandbox, these limits and this device (else ValueError),
    or from one made for the call. `ward` says whether the device is fit, and looks at it after an abnormal end; the
    user's own where none is given. Other evaluations on the same GPU are waited for. `build` is what came of building
    the solution ahead; else that is done here. `ceilings` measures what the device can do, or remembers it.

    A gain above `plan.second_look` is measured again from the start, in new processes on new seeds; the lower one
    counts, and both have to pass.
    """

    post = Post(sandbox, limits, str(device))
    if pool is not None and pool.post != post:
        raise ValueError(f"the pool keeps workers for {pool.post}; expected {post}")
    ward = ward or Ward.usual()
    if refusal := ward.refusal(device):
        made = _Attempt(Status.INFRA_ERROR, refusal, Phase.START, Findings(policy=policy))
    else:
        with nullcontext(pool) if pool is not None else Pool(post, replenish=False) as workers:
            attempt = partial(
                _attempt, problem, solution, device, dtype, workers, deadlines, plan, policy, build, ceilings, on_phase
            )
            made = _looked_at(attempt, plan.second_look)
        if made.abnormal:
            make_room(device)
            # Alone, like an evaluation: another's memory would be taken for what this one left behind.
            with suppress(NoTurn), turn(device, deadlines.queue, state_folder()):
                ward.look(device, after=f"{made.status.value} of {solution.path.name}, sha256 {solution.sha256[:16]}")
    status, message, phase, found = made.status, made.message, made.phase, made.found

    passed = status is Status.PASSED
    ratio = found.ratio if passed else None
    return Verdict(
        status=status,
        phase=phase,
        message=message,
        problem=problem.source.path.name,
        problem_sha256=problem.source.sha256,
        solution=solution.path.name,
        solution_sha256=solution.sha256,
        dtype=dtype_name(dtype),
        train_mode=problem.train_mode,
        trials=found.trials,
        timed_outputs_checked=found.timed_outputs_checked,
        weights=found.weights,
        stresses=tuple(found.stresses),
        errors=found.errors,
        baseline=found.baseline if passed else None,
        time=found.time if passed else None,
        speedup=ratio.mean if ratio else None,
        speedup_low=ratio.low if ratio else None,
        speedup_high=ratio.high if ratio else None,
        rounds=found.rounds if passed else None,
        noise=found.noise if passed else None,
        decision=decide(ratio, found.noise or 0.0) if ratio else None,
        host_baseline=found.host_baseline if passed else None,
        host_time=found.host_time if passed else None,
        floor=found.floor,
        percent_of_floor=100 * found.floor.floor_ms / found.time.p50_ms
        if passed and found.floor and found.time
        else None,
        policy=policy,
        flags=tuple(found.flags),
        evidence=found.evidence,
        unseen=found.unseen,
        sandbox=SandboxRecord(kind=sandbox.value, missing=found.missing_layers, layers=found.layers),
        environment=describe(device),
    )


_ABNORMAL = (Status.CRASHED, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.INFRA_ERROR)


@dataclass(frozen=True)
class _Attempt:
    """One run of the protocol, whatever came of it."""

    status: Status
    message: str
    phase: Phase | None
    found: Findings

    @property
    def abnormal(self) -> bool:
        """Whether the device may have suffered: the worker did not end as workers do."""
        lost_context = self.status is Status.RUNTIME_ERROR and "CUDA" in self.message
        return lost_context or (self.status in _ABNORMAL and self.phase not in (Phase.QUEUE, Phase.COMPILE))

    @property
    def gain(self) -> float:
        """The speedup; 0 without a pass."""
        return self.found.ratio.mean if self.status is Status.PASSED and self.found.ratio else 0.0


def _looked_at(attempt: Callable[[], _Attempt], second_look: float) -> _Attempt:
    """The run that counts, of one or two."""
    made = attempt()
    if made.gain > second_look:
        again = attempt()
        first, second = made.gain, again.gain
        if again.status is not Status.PASSED:
            made = replace(again, message=f"after a first look at {first:.3g}x: {again.message}")
        else:
            made = min(made, again, key=lambda one: one.gain)
            both = f"{first:.3g}x, and {second:.3g}x at a second look in new processes"
            made.found.flags.append(Flag(name="large_gain", evidence=both))
    return made


def _attempt(
    problem: Problem,
    solution: Source,
    device: torch.device,
    dtype: torch.dtype,
    workers: Pool,
    deadlines: Deadlines,
    plan: Plan,
    policy: Policy,
    build: Build | None,
    ceilings: Callable[..., Ceilings],
    on_phase: Callable[[str], None],
) -> _Attempt:
    found = Findings(policy=policy)
    try:
        found.layers = standing(workers.post.kind, workers.post.device)
        found.phase = Phase.COMPILE
        if build is None:
            built = compiled(solution, workers.post, device, deadlines, on_phase)
        elif build.end is not None:
            raise Ended(*build.end)
        else:
            built = build.tree
        found.phase = Phase.QUEUE
        on_phase("waiting for the device")
        with (
            turn(device, deadlines.queue, state_folder()),
            Session(workers.take(), device, deadlines) as candidate,
            ExitStack() as later,
        ):

            def baseline() -> Session:
                return later.enter_context(Session(workers.take(), device, deadlines))

            found.phase = Phase.START
            on_phase("starting workers")
            found.missing_layers = candidate.process.missing
            _examine(problem, solution, built, candidate, baseline, plan, device, dtype, ceilings, found, on_phase)
            if plan.sanitizer is not None:
                on_phase("compute-sanitizer")
                exam = Exam(problem, dtype, device, plan.tolerance)
                if flag := sanitized(exam, solution, built, workers.post, deadlines, plan.sanitizer):
                    found.flag(flag)
    except (InvalidProblem, torch.OutOfMemoryError) as error:
        crowded = isinstance(error, torch.OutOfMemoryError) or isinstance(error.__cause__, torch.OutOfMemoryError)
        if crowded and found.phase in (Phase.CHECK, Phase.TIME):
            # The first question was answered when the solution had not run yet.
            return _Attempt(Status.OUT_OF_MEMORY, "it leaves the judge no room on the device", found.phase, found)
        return _Attempt(Status.INVALID_PROBLEM, str(error), None, found)
    except ProtocolError as error:
        # Of the protocol, only what cannot cross to a worker gets here: the problem's own arguments.
        return _Attempt(Status.INVALID_PROBLEM, str(error), None, found)
    except (SandboxError, NoTurn) as error:
        return _Attempt(Status.INFRA_ERROR, str(error), found.phase, found)
    except End as end:
        return _Attempt(end.status, end.message, found.phase, found)
    except Ended as end:
        return _Attempt(end.status, end.message, end.phase, found)
    return _Attempt(Status.PASSED, "", None, found)


def _examine(
    problem: Problem,
    solution: Source,
    built: bytes | None,
    candidate: Session,
    open_baseline: Callable[[], Session],
    plan: Plan,
    device: torch.device,
    dtype: torch.dtype,
    ceilings: Callable[..., Ceilings],
    found: Findings,
    on_phase: Callable[[str], None],
) -> None:
    """The whole protocol; returns only for a pass. The baseline's worker is taken when there is something to time."""
    exam = Exam(problem, dtype, device, plan.tolerance)
    first = exam.first_question()
    cost = exam.cost(first)  # its first use imports for a second, beside the workers
    candidate.await_start()

    for flag in lint(solution.text, full_precision=dtype is torch.float32):
        found.flag(flag)
    found.phase = Phase.LOAD
    on_phase("loading the solution")
    if built is not None:
        candidate.unpack(built)
    state = exam.model.state_dict()
    found.weights = candidate.load(
        solution.path.name,
        solution.text,
        "ModelNew",
        exam.init_arguments,
        exam.weight_seed,
        dtype,
        state,
        train_mode=problem.train_mode,
    )

    first = settle_weights(exam, first, found)

    found.phase = candidate.phase = Phase.CHECK
    on_phase("checking")
    first_answer, question_bytes = first.honest, first.bytes
    input_bytes = sum(tensor.numel() * tensor.element_size() for tensor in first.pristine())
    check(exam, candidate, first, found)
    check_pair(exam, candidate, first, plan, found)
    # Outputs of gigabytes are common, with a float64 reference of twice that beside: one question lives at a time.
    del first
    for trial in range(1, plan.trials):
        question = exam.question()
        ask(exam, candidate, question, found)
        if trial == 1 and (reason := exam.degenerate(question, first_answer)):
            found.flag(Flag(name="degenerate_problem", evidence=reason))
        del question
    del first_answer
    on_phase("checking under stress")
    check_stresses(exam, candidate, plan, found, question_bytes)

    found.phase = candidate.phase = Phase.TIME
    on_phase("measuring ceilings")
    with blameless():
        baseline = open_baseline()
        baseline.await_start()
        baseline.load(
            problem.source.path.name,
            problem.source.text,
            "Model",
            exam.init_arguments,
            exam.weight_seed,
            dtype,
            state,
            train_mode=problem.train_mode,
        )
    baseline.phase = Phase.TIME
    found.floor = floor(cost, ceilings(device, dtype_name(dtype), matrix=cost.matrix))
    time_rounds(exam, candidate, baseline, plan, found, input_bytes, on_phase)
    on_phase("looking at what ran")
    evidence.collect(candidate, baseline, exam.arguments(), solution, dtype, found)
