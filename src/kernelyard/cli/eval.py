"""`kernelyard eval PROBLEM.py SOLUTION.py`: judge a stranger's kernel."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kernelyard.core.amounts import MOST_ROUNDS, gib_option, seconds_option
from kernelyard.core.choices import choice_option
from kernelyard.core.errors import UsageError
from kernelyard.core.imports import uncollected
from kernelyard.core.policy import Policy
from kernelyard.sandbox import devices
from kernelyard.sandbox.launch import SandboxKind, choose
from kernelyard.sandbox.limits import GIB, Limits
from kernelyard.sandbox.pool import Pool, Post

PHASES = ("compile", "load", "check", "time")


def eval(
    problem: Annotated[Path, typer.Argument(metavar="PROBLEM.py", help="Model, get_inputs, get_init_inputs.")],
    solution: Annotated[Path, typer.Argument(metavar="SOLUTION.py", help="ModelNew. Parsed here, run in a sandbox.")],
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16: of weights and floating-point inputs.")] = "fp32",
    train: Annotated[bool, typer.Option("--train", help="In training mode; dropout alone cannot be judged.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The record as one line of JSON, the last of stdout.")] = False,
    timeout: Annotated[float | None, seconds_option(0.1, "Seconds for each of the four phases below.")] = None,
    compile_timeout: Annotated[float | None, seconds_option(0.1, "Seconds to build, without a device.")] = None,
    load_timeout: Annotated[float | None, seconds_option(0.1, "Seconds to import and construct.")] = None,
    check_timeout: Annotated[float | None, seconds_option(0.1, "A checked request; all, 5 times that.")] = None,
    time_timeout: Annotated[float | None, seconds_option(0.1, "A timed request; all, 5 times that.")] = None,
    queue_timeout: Annotated[float | None, seconds_option(0.1, "Seconds until the device is free.")] = None,
    memory: Annotated[float, gib_option(0.1, "GiB of host memory for the solution's processes.")] = 16.0,
    rounds: Annotated[
        int, typer.Option(min=3, max=MOST_ROUNDS, help="Timed rounds at least; the first is a warm-up.")
    ] = 9,
    budget: Annotated[float, seconds_option(0.0, "Seconds of timing while the interval is wide.")] = 60.0,
    policy: Annotated[Policy, typer.Option(help="What is done about flags.")] = Policy.TRAINING,
    sandbox: Annotated[
        SandboxKind | None,
        choice_option(SandboxKind.NONE, "--unsafe-no-sandbox for none", "By default the strongest that runs here."),
    ] = None,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="Once more, under compute-sanitizer.")] = False,
    unsafe: Annotated[bool, typer.Option("--unsafe-no-sandbox", help="For your own code alone; on record.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, xpu; by default what is there.")] = None,
) -> None:
    """Judge SOLUTION on PROBLEM in a process that is not this one; exit code 0 if it passed, 1 if not."""
    if unsafe and sandbox is not None:
        raise UsageError("--sandbox and --unsafe-no-sandbox: expected one of them")
    sandbox = SandboxKind.NONE if unsafe else sandbox
    limits = Limits(memory_bytes=int(memory * GIB))
    with _early_workers(sandbox, limits, devices.likely(device)) as early:
        # These import torch, as the workers do meanwhile: 1.2 s that are paid once and not twice.
        with uncollected():
            from kernelyard.core.environment import resolve_device
            from kernelyard.core.verdict import Status
            from kernelyard.core.workload import DTYPES, parse_dtype
            from kernelyard.judge.evaluate import evaluate
            from kernelyard.judge.plan import Plan
            from kernelyard.judge.sanitizing import check_possible
            from kernelyard.report.verdict import verdict_lines
            from kernelyard.sandbox.deadlines import Deadlines
            from kernelyard.suites.kernelbench import load_problem, read_solution

        where = resolve_device(device)
        kind = choose(sandbox, str(where))
        program = check_possible(where, kind) if sanitize else None
        of_phase = dict(zip(PHASES, (compile_timeout, load_timeout, check_timeout, time_timeout), strict=True))
        asked = {phase: own or timeout for phase, own in of_phase.items()} | {"queue": queue_timeout}
        deadlines = Deadlines(**{phase: seconds for phase, seconds in asked.items() if seconds is not None})
        question, answer = replace(load_problem(problem), train_mode=train), read_solution(solution)
        pool = early.result()
        with Console(stderr=True).status("") as status:
            verdict = evaluate(
                question,
                answer,
                device=where,
                dtype=DTYPES[parse_dtype(dtype)],
                sandbox=kind,
                limits=limits,
                deadlines=deadlines,
                plan=Plan(rounds=rounds, seconds=budget, sanitizer=program),
                policy=policy,
                pool=pool if pool is not None and pool.post == Post(kind, limits, str(where)) else None,
                on_phase=status.update,
            )
    print("\n".join(verdict_lines(verdict)))
    if json:
        print(verdict.model_dump_json())
    if verdict.status is not Status.PASSED:
        raise typer.Exit(1)


@contextmanager
def _early_workers(sandbox: SandboxKind | None, limits: Limits, device: str | None) -> Iterator[Future[Pool | None]]:
    """One evaluation's workers, on the way before anything here is imported; None where the device is not clear."""
    with ThreadPoolExecutor(1, "early") as thread:
        pool = thread.submit(_start, sandbox, limits, device)
        try:
            yield pool
        finally:
            with suppress(UsageError):
                if (started := pool.result()) is not None:
                    started.close()


def _start(sandbox: SandboxKind | None, limits: Limits, device: str | None) -> Pool | None:
    if device is None:
        return None
    kind = choose(sandbox, device)
    threading.Thread(target=_witness_early, args=(kind, device), name="witness", daemon=True).start()
    return Pool(Post(kind, limits, device), replenish=False)


def _witness_early(kind: SandboxKind, device: str) -> None:
    """Try the walls while the imports run; `evaluate` waits for it, and says what it finds."""
    from kernelyard.sandbox.witness import standing

    with suppress(Exception):
        standing(kind, device)
