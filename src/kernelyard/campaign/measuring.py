"""Measuring baselines: a process a problem, so that a crash, a hang or a leak costs one of them.

References are trusted: they run without a sandbox, on inputs that need not be secret.
"""

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

from kernelyard.campaign.baselines import Baseline, Variant
from kernelyard.core.environment import Environment, describe
from kernelyard.core.errors import FAULTS, UsageError, first_line
from kernelyard.core.folders import state_folder
from kernelyard.core.interrupts import deaf_children, end_with_parent
from kernelyard.core.problem import Problem, listed
from kernelyard.core.verdict import Record, Timing
from kernelyard.core.workload import DTYPES
from kernelyard.judge.timing import interleaved
from kernelyard.sandbox.turn import NoTurn, turn
from kernelyard.suites.suite import Entry

SEED = 42
OPTIONS: dict[Variant, dict[str, Any]] = {
    Variant.COMPILE: {"backend": "inductor", "mode": "default"},
    Variant.MAX_AUTOTUNE: {"backend": "inductor", "mode": "max-autotune"},
    Variant.CUDAGRAPHS: {"backend": "cudagraphs"},
}
"""As KernelBench's `generate_baseline_time.py` names them."""
SAMPLE_SECONDS = 1.0
"""Of each variant; 200 samples at most."""
QUEUE_SECONDS = 600.0
"""Until the device is free of other runs."""


@dataclass(frozen=True)
class Request:
    """What all problems have in common."""

    device: torch.device
    dtype: str
    """torch's name."""
    train_mode: bool
    variants: tuple[Variant, ...]


class Measured(Record):
    """What a process has to say of its problem."""

    times: dict[Variant, Timing]
    failures: dict[Variant, str]
    environment: Environment
    seconds: float


class Lost(Exception):
    """The process of a problem ended or did not; nothing is kept, so the next run tries again."""


def measure_all(entries: Sequence[Entry], request: Request, timeout: float) -> Iterator[tuple[Entry, Baseline | str]]:
    """Each problem's baseline, or why there is none.

    The next process imports torch while the one before it measures; it touches the device when its turn comes.
    """
    waiting = _Process() if entries else None
    for place, entry in enumerate(entries):
        assert waiting is not None
        process, waiting = waiting, _Process() if place + 1 < len(entries) else None
        try:
            with turn(request.device, QUEUE_SECONDS, state_folder()):
                found = process.measure(entry.load, request, timeout)
        except (Lost, NoTurn) as lost:
            yield entry, str(lost)
            continue
        finally:
            process.close()
        yield (
            entry,
            Baseline(
                level=entry.level,
                problem=entry.number,
                problem_name=entry.name,
                problem_sha256=entry.source.sha256,
                dtype=request.dtype,
                train_mode=request.train_mode,
                **dict(found),
            ),
        )


class _Process:
    """One life, one problem."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with deaf_children():
            self.process.start()
        theirs.close()

    def measure(self, load: Callable[[], Problem], request: Request, timeout: float) -> Measured:
        """Raises Lost where the process does not answer."""
        try:
            self.pipe.send((load, request))
            if not self.pipe.poll(timeout):
                raise Lost(f"no end after {timeout:g} s")
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(5)
            raise Lost(f"its process ended by itself, exit code {self.process.exitcode}") from None
        if isinstance(answer, str):
            raise Lost(answer)
        return answer

    def close(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def _serve(pipe: Connection) -> None:
    end_with_parent()
    try:
        load, request = pipe.recv()
    except EOFError:
        return
    _silence()
    try:
        pipe.send(measure(load(), request))
    except UsageError as error:
        pipe.send(str(error))
    except FAULTS as error:
        pipe.send(f"the reference fails: {first_line(error)}")


def _silence() -> None:
    """max-autotune prints a table for every matrix product."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)


def measure(problem: Problem, request: Request) -> Measured:
    """Every variant that runs, interleaved with eager, which always does: it raises what the reference raises."""
    begin = time.monotonic()
    calls: dict[Variant, Callable[[], object]] = {}
    failures: dict[Variant, str] = {}
    problem = replace(problem, train_mode=request.train_mode)
    device, dtype = request.device, DTYPES[request.dtype]
    model = problem.make_model(listed(problem.get_init_inputs(), "get_init_inputs"), SEED, dtype, device)
    inputs = problem.make_inputs(SEED, dtype, device)
    for variant in dict.fromkeys([Variant.EAGER, *request.variants]):
        try:
            calls[variant] = _call(model, inputs, variant, device)
            calls[variant]()
        except FAULTS as error:
            if variant is Variant.EAGER:
                raise
            calls.pop(variant, None)
            failures[variant] = (str(error) if isinstance(error, UsageError) else first_line(error))[:500]
            gc.collect()
    timed = interleaved({variant.value: call for variant, call in calls.items()}, device, seconds=SAMPLE_SECONDS)
    return Measured(
        times={Variant(name): timing for name, timing in timed.items()},
        failures=failures,
        environment=describe(device),
        seconds=time.monotonic() - begin,
    )


def _call(model: nn.Module, inputs: list[Any], variant: Variant, device: torch.device) -> Callable[[], object]:
    if variant is Variant.CUDAGRAPHS and device.type != "cuda":
        raise UsageError("needs a GPU")
    run = model if variant is Variant.EAGER else torch.compile(model, **OPTIONS[variant])
    return torch.no_grad()(lambda: run(*inputs))
