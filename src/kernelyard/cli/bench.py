"""`kernelyard bench OP`: prove every backend at every size, then time the proved ones against one another."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from kernelyard import ops
from kernelyard.core.environment import Environment, describe, resolve_device
from kernelyard.core.errors import UsageError, first_line, unknown
from kernelyard.core.operator import Backend, Implementation, Operator, Sweep
from kernelyard.core.workload import DTYPES, Mode, Workload, parse_dtype
from kernelyard.judge.floor import Ceilings, floor, measure_ceilings
from kernelyard.judge.prepare import prepare
from kernelyard.judge.prove import REFUSED, Answers, Proof, prove
from kernelyard.judge.timing import Call, interleaved, peak_memory
from kernelyard.report import ledger
from kernelyard.report.console import table_console
from kernelyard.report.ledger import BenchRow
from kernelyard.report.results import Grid, grids
from kernelyard.report.table import format_ms
from kernelyard.suites.library import implementation, implementations

METRICS = ("speed", "memory")
COPY = "copy"
"""Name of the copy that runs between the backends; no backend is called so."""
MEMORY_CALLS = 5


@dataclass(frozen=True)
class Point:
    """One size of one dtype's sweep."""

    sweep: Sweep
    x: int
    workload: Workload


def bench(
    operator: Annotated[str, typer.Argument(metavar="OP", help="The operator, as `kernelyard list` names it.")],
    backend: Annotated[list[str] | None, typer.Option(help="A backend to time; all of them without.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="fp32, bf16 or fp16; all without.")] = None,
    mode: Annotated[list[str] | None, typer.Option(help="forward, backward or full; all without.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="speed or memory; both without.")] = None,
    x: Annotated[list[int] | None, typer.Option(help="A size of the operator's sweep; all without.")] = None,
    csv: Annotated[Path, typer.Option(help="The CSV that rows are added to.")] = ledger.DEFAULT_CSV,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace older rows of the same keys.")] = False,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long to sample each call at each size.")] = 0.5,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, xpu; found by itself without.")] = None,
) -> None:
    """Prove every backend of an operator at every size, time the proved ones, add the numbers to a CSV."""
    where = resolve_device(device)
    definition = ops.definition(operator)
    candidates = implementations(operator, backend)
    points = _points(definition, _chosen("dtype", dtype, list(DTYPES), parse_dtype), x, where)
    modes = [Mode(name) for name in _chosen("mode", mode, _modes(definition))]
    metrics = _chosen("metric", metric, METRICS)
    ledger.require_ledger(csv)

    console = Console(stderr=True)
    with _progress(console) as progress:
        proofs = _prove_all(definition, candidates, points, where, progress)
        wrong = _report_unproved(proofs.values(), console)
        run = Run(definition, metrics, where, seconds, describe(where), console)
        rows: list[BenchRow] = []
        task = progress.add_task("timing", total=len(points) * len(modes))
        for point in points:
            proved = [item for item in candidates if _may_be_timed(item.backend, point.workload, proofs)]
            for each in modes:
                measured = run.measure(point, each, proved) if proved else []
                if measured:
                    ledger.append(csv, measured, overwrite=overwrite)
                rows += measured
                progress.advance(task)

    _print(rows)
    _say(
        console,
        f"{len(rows)} rows added to {csv}" if rows else f"nothing was measured: no row added to {csv}",
    )
    if wrong or run.failures:
        raise typer.Exit(1)


def _modes(definition: Operator) -> list[str]:
    return [mode.value for mode in Mode] if definition.differentiable else [Mode.FORWARD.value]


def _chosen(kind: str, wanted: list[str] | None, known: Sequence[str], parse: Callable[[str], str] = str) -> list[str]:
    """The wanted names in the order of `known`, or all of them; raises UsageError for any other name."""
    names = [parse(name) for name in wanted or known]
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)
    return [name for name in known if name in names]


def _points(definition: Operator, dtypes: list[str], sizes: list[int] | None, device: torch.device) -> list[Point]:
    points = []
    for dtype in dtypes:
        sweep = definition.sweeps(dtype, device.type)[0]
        present = [x for x, _ in sweep.points]
        if absent := [x for x in sizes or () if x not in present]:
            raise UsageError(
                f"--x {absent[0]}: the sweep of {definition.name} on {device.type} has {sweep.x_name} of "
                f"{', '.join(map(str, present))}"
            )
        points += [Point(sweep, x, workload) for x, workload in sweep.points if not sizes or x in sizes]
    return points


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _prove_all(
    definition: Operator,
    candidates: list[Implementation],
    points: list[Point],
    device: torch.device,
    progress: Progress,
) -> dict[tuple[Workload, str], Proof]:
    honest = implementation(definition.name, Backend.EAGER.value)
    task = progress.add_task("proving", total=len(points) * len(candidates))
    proofs = {}
    for point in points:
        answers = Answers(definition, honest, point.workload, device)
        for candidate in candidates:
            proof = prove(definition, candidate, honest, point.workload, device, answers)
            proofs[point.workload, candidate.backend] = proof
            progress.advance(task)
    return proofs


def _report_unproved(proofs: Iterable[Proof], console: Console) -> bool:
    """Names every backend that did not pass, each reason once; true where one was wrong, not just unable."""
    said: set[tuple[str, str, str]] = set()
    for proof in proofs:
        reason = (proof.backend, proof.status, proof.message)
        if proof.passed or reason in said:
            continue
        said.add(reason)
        _say(console, f"{proof.backend}: {proof.status} on {proof.workload}: {proof.message}; not timed")
        if proof.report:
            _say(console, proof.report)
    return any(status != REFUSED for _, status, _ in said)


def _may_be_timed(backend: str, workload: Workload, proofs: dict[tuple[Workload, str], Proof]) -> bool:
    """Proved on this workload, and wrong on no other of its dtype: caught once is not believed elsewhere."""
    alike = [proof for (on, name), proof in proofs.items() if name == backend and on.dtype == workload.dtype]
    return proofs[workload, backend].passed and all(proof.passed or proof.status == REFUSED for proof in alike)


@dataclass
class Run:
    """The measuring of proved backends, point by point."""

    definition: Operator
    metrics: list[str]
    device: torch.device
    seconds: float
    environment: Environment
    console: Console
    known_ceilings: dict[str, Ceilings] = field(default_factory=dict)
    failures: set[tuple[str, Mode, str]] = field(default_factory=set)
    """Proved backends that raised while they were timed, or took a time that no device could reach."""

    def measure(self, point: Point, mode: Mode, candidates: list[Implementation]) -> list[BenchRow]:
        """The rows of every candidate at one point, all timed against one another in one go."""
        calls = self._prepared(point, mode, candidates)
        if not calls:
            return []
        rows = self._speeds(point, mode, calls) if "speed" in self.metrics else []
        return rows + (self._memories(point, mode, calls) if "memory" in self.metrics else [])

    def _prepared(self, point: Point, mode: Mode, candidates: list[Implementation]) -> dict[str, Call]:
        calls: dict[str, Call] = {}
        for candidate in candidates:
            try:
                call = prepare(self.definition, candidate, point.workload, mode, self.device)
                call()
            except Exception as error:
                # Proved alone and failing here is mostly memory: the others keep their inputs on the device.
                self._fail(candidate.backend, point, mode, first_line(error))
            else:
                calls[candidate.backend] = call
        return calls

    def _speeds(self, point: Point, mode: Mode, calls: dict[str, Call]) -> list[BenchRow]:
        cost = self.definition.cost(point.workload, mode)
        timings = interleaved({**calls, COPY: _copy(cost.bytes, self.device)}, self.device, seconds=self.seconds)
        ceilings = self._ceilings(point.workload.dtype, cost.matrix)
        copied = ceilings.model_copy(update={"copy_gbps": cost.bytes / timings[COPY].p50_ms / 1e6})
        limit, impossible_ms = floor(cost, copied), floor(cost, ceilings).impossible_ms
        rows = []
        for backend in calls:
            timing = timings[backend]
            if timing.p50_ms < impossible_ms:
                reason = f"{format_ms(timing.p50_ms)} is under the possible {format_ms(impossible_ms)}"
                self._fail(backend, point, mode, reason)
                continue
            rows.append(
                self._row(
                    point,
                    mode,
                    backend,
                    metric_name="speed",
                    metric_unit="ms",
                    y_value_50=timing.p50_ms,
                    y_value_20=timing.p20_ms,
                    y_value_80=timing.p80_ms,
                    timer=timing.timer,
                    cache=timing.cache,
                    bytes=limit.bytes,
                    copy_gbps=limit.copy_gbps,
                    floor_ms=limit.floor_ms,
                    percent_of_floor=100 * limit.floor_ms / timing.p50_ms,
                    datasheet_gbps=limit.datasheet_gbps,
                )
            )
        return rows

    def _memories(self, point: Point, mode: Mode, calls: dict[str, Call]) -> list[BenchRow]:
        least = self.definition.cost(point.workload, mode).write_bytes
        rows = []
        for backend, call in calls.items():
            peaks = [peak_memory(call, self.device) for _ in range(MEMORY_CALLS)]
            known = sorted(peak / 1e6 for peak in peaks if peak is not None)
            # A CPU's allocator hands out pages it already holds, which the resident set then does not show.
            if not known or (self.device.type == "cpu" and known[len(known) // 2] * 1e6 < least):
                continue
            rows.append(
                self._row(
                    point,
                    mode,
                    backend,
                    metric_name="memory",
                    metric_unit="MB",
                    y_value_50=known[len(known) // 2],
                    y_value_20=known[len(known) // 5],
                    y_value_80=known[-1 - len(known) // 5],
                    timer=None,
                    cache=None,
                    bytes=least,
                    copy_gbps=None,
                    floor_ms=None,
                    percent_of_floor=None,
                    datasheet_gbps=None,
                )
            )
        return rows

    def _row(self, point: Point, mode: Mode, backend: str, **measured: Any) -> BenchRow:
        environment = self.environment
        return BenchRow(
            kernel_name=self.definition.name,
            kernel_provider=backend,
            kernel_operation_mode=mode.value,
            x_name=point.sweep.x_name,
            x_label=point.sweep.x_label,
            x_value=point.x,
            extra_benchmark_config_str=ledger.config_text(point.workload.dtype, **dict(point.workload.options)),
            gpu_name=environment.device_name,
            timestamp=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            torch_version=environment.torch,
            triton_version=environment.triton,
            cuda_version=environment.cuda,
            driver=environment.driver,
            kernelyard_version=environment.kernelyard,
            commit=environment.commit,
            **measured,
        )

    def _ceilings(self, dtype: str, matrix: bool) -> Ceilings:
        """Measured once a dtype: the bound that no honest time is under, and the matrix product's ceiling."""
        if dtype not in self.known_ceilings:
            self.known_ceilings[dtype] = measure_ceilings(self.device, dtype, matrix=matrix)
        return self.known_ceilings[dtype]

    def _fail(self, backend: str, point: Point, mode: Mode, reason: str) -> None:
        if (backend, mode, reason) not in self.failures:
            _say(self.console, f"{backend}: {mode.value} on {point.workload.label}: {reason}; no row")
        self.failures.add((backend, mode, reason))


def _copy(size: int, device: torch.device) -> Call:
    """A copy that reads half of `size` bytes and writes the other half."""
    source = torch.ones(max(size // 2, 1), dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _print(rows: list[BenchRow]) -> None:
    console = table_console()
    for grid in grids(pd.DataFrame([row.model_dump() for row in rows], columns=ledger.COLUMNS)):
        console.print(_table(grid))


def _table(grid: Grid) -> Table:
    table = Table(title=grid.title, title_justify="left")
    for name in (grid.size_name, "floor", *grid.providers):
        table.add_column(name, justify="right")
    for line in grid.lines:
        cells = [f"[bold]{cell}[/]" if index == line.best else cell for index, cell in enumerate(line.cells)]
        table.add_row(line.size, line.least, *cells)
    return table
