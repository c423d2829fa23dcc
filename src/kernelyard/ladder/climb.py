"""Climb: prove and time every backend of an operator on one workload."""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from kernelyard.core.environment import describe
from kernelyard.core.operator import Implementation, Operator
from kernelyard.core.verdict import Floor, Timing
from kernelyard.core.workload import Mode, Workload
from kernelyard.judge.prepare import prepare
from kernelyard.judge.prove import Answers, Proof, prove
from kernelyard.judge.timing import count_kernels, interleaved, peak_memory
from kernelyard.ladder.record import Ladder, LadderRow


def climb(
    operator: Operator,
    backends: list[Implementation],
    honest: Implementation,
    workload: Workload,
    mode: Mode,
    floor: Floor,
    device: torch.device,
    on_step: Callable[[str], None] = lambda _: None,
) -> Ladder:
    """Prove first; time together, interleaved, what passed."""
    answers = Answers(operator, honest, workload, device)
    proofs: dict[str, Proof] = {}
    first_call: dict[str, float] = {}
    for backend in backends:
        on_step(f"proving {backend.backend}")
        begin = time.perf_counter()
        proofs[backend.backend] = prove(operator, backend, honest, workload, device, answers)
        first_call[backend.backend] = time.perf_counter() - begin
    del answers

    calls, later = {}, {}
    for backend in backends:
        if proofs[backend.backend].passed:
            calls[backend.backend] = prepare(operator, backend, workload, mode, device)
            answers_again = Answers(operator, honest, workload, device)
            begin = time.perf_counter()
            prove(operator, backend, honest, workload, device, answers_again)
            later[backend.backend] = time.perf_counter() - begin
    on_step("timing")
    timings = interleaved(calls, device) if calls else {}
    rows = tuple(
        _row(backend, proofs[backend.backend], timings.get(backend.backend), calls, first_call, later, floor, device)
        for backend in backends
    )
    return Ladder(
        operator=operator.name,
        workload=workload.label,
        mode=mode.value,
        floor=floor,
        rows=rows,
        environment=describe(device),
    )


def _row(
    backend: Implementation,
    proof: Proof,
    timing: Timing | None,
    calls: dict[str, Callable[[], object]],
    first_call: dict[str, float],
    later: dict[str, float],
    floor: Floor,
    device: torch.device,
) -> LadderRow:
    name = backend.backend
    call = calls.get(name)
    worst = max(proof.errors, key=lambda figures: figures.over_honest or 0.0, default=None)
    return LadderRow(
        backend=name,
        status=proof.status,
        message=proof.message,
        time=timing,
        gbps=floor.bytes / timing.p50_ms / 1e6 if timing else None,
        percent_of_floor=100 * floor.floor_ms / timing.p50_ms if timing else None,
        kernels=count_kernels(call, device) if call else None,
        peak_bytes=peak_memory(call, device) if call else None,
        error=worst,
        compile_seconds=max(first_call[name] - later[name], 0.0) if name in later else None,
        lines_of_code=sum(lines_of_code(path) for path in backend.source_files),
    )


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank nor a comment."""
    marks = ("//", "/*", "*") if path.suffix in (".cu", ".cuh") else ("#",)
    return sum(bool(line.strip()) and not line.strip().startswith(marks) for line in path.read_text().splitlines())
