"""Climb: prove and time every backend of an operator on one workload."""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from kernelyard.core.environment import describe
from kernelyard.core.errors import first_line
from kernelyard.core.operator import Implementation, Operator
from kernelyard.core.verdict import Floor, Status, Timing, worst_of
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
    calls: dict[str, Callable[[], object]] = {}
    compile_seconds: dict[str, float] = {}
    for backend in backends:
        on_step(f"proving {backend.backend}")
        first, first_seconds = _timed_proof(operator, backend, honest, workload, device, answers)
        proofs[backend.backend] = first
        if first.passed:
            # The same again, for what the first call took beyond a later one; it has to pass again too.
            proofs[backend.backend], later_seconds = _timed_proof(operator, backend, honest, workload, device, answers)
            compile_seconds[backend.backend] = max(first_seconds - later_seconds, 0.0)
        if proofs[backend.backend].passed:
            try:
                call = prepare(operator, backend, workload, mode, device)
                call()
            except Exception as error:
                # Proved alone and failing here is mostly memory: the others keep their inputs on the device.
                failed = {"status": Status.RUNTIME_ERROR.value, "message": first_line(error)}
                proofs[backend.backend] = proofs[backend.backend].model_copy(update=failed)
            else:
                calls[backend.backend] = call
    del answers
    on_step("timing")
    timings = interleaved(calls, device) if calls else {}
    rows = tuple(
        _row(b, proofs[b.backend], timings.get(b.backend), calls.get(b.backend), compile_seconds, floor, device)
        for b in backends
    )
    return Ladder(
        operator=operator.name,
        workload=workload.label,
        mode=mode.value,
        floor=floor,
        rows=rows,
        environment=describe(device),
    )


def _timed_proof(
    operator: Operator,
    backend: Implementation,
    honest: Implementation,
    workload: Workload,
    device: torch.device,
    answers: Answers,
) -> tuple[Proof, float]:
    begin = time.perf_counter()
    proof = prove(operator, backend, honest, workload, device, answers)
    return proof, time.perf_counter() - begin


def _row(
    backend: Implementation,
    proof: Proof,
    timing: Timing | None,
    call: Callable[[], object] | None,
    compile_seconds: dict[str, float],
    floor: Floor,
    device: torch.device,
) -> LadderRow:
    name = backend.backend
    return LadderRow(
        backend=name,
        status=proof.status,
        message=proof.message,
        time=timing,
        gbps=floor.bytes / timing.p50_ms / 1e6 if timing else None,
        percent_of_floor=100 * floor.floor_ms / timing.p50_ms if timing else None,
        kernels=count_kernels(call, device) if call else None,
        peak_bytes=peak_memory(call, device) if call else None,
        error=worst_of(proof.errors) or next(iter(proof.errors), None),
        compile_seconds=compile_seconds.get(name),
        lines_of_code=sum(lines_of_code(path) for path in backend.source_files),
    )


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank nor a comment."""
    marks = ("//", "/*", "*") if path.suffix in (".cu", ".cuh") else ("#",)
    return sum(bool(line.strip()) and not line.strip().startswith(marks) for line in path.read_text().splitlines())
