"""`kernelyard bench OP...`: prove every backend at every size, then time the proved ones against one another."""

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from kernelyard import ops
from kernelyard.bench.measure import Run
from kernelyard.bench.plan import METRICS, Request, points
from kernelyard.bench.prove import Proofs
from kernelyard.core.amounts import seconds_option
from kernelyard.core.environment import describe, resolve_device
from kernelyard.core.errors import UsageError, first_line, unknown
from kernelyard.core.folders import state_folder
from kernelyard.core.operator import Backend, Implementation, Operator
from kernelyard.core.workload import DTYPES, Mode, parse_dtype
from kernelyard.report import ledger
from kernelyard.report.acceptance import verdict
from kernelyard.report.console import table_console
from kernelyard.report.ledger import BenchRow
from kernelyard.report.overview import save_overviews
from kernelyard.report.results import Grid, grids
from kernelyard.sandbox.turn import turn
from kernelyard.suites.library import PeerAbsent, implementation, implementations, peer

EVERYONE = "all"
"""After --against: all the peers that there are, whatever they are called."""
TURN_SECONDS = 3600.0
"""How long a run waits for others on its GPU: all operators in all dtypes take about ten minutes."""


def bench(
    operator: Annotated[
        list[str] | None, typer.Argument(metavar="OP...", help="Operators, as `kernelyard list` names them.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every operator there is.")] = False,
    backend: Annotated[list[str] | None, typer.Option(help="A backend to time; all of them without.")] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="Foreign libraries or backends to add: liger,quack,inductor,compile; or all of the former."),
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="fp32, bf16 or fp16; all without.")] = None,
    mode: Annotated[list[str] | None, typer.Option(help="forward, backward or full; all without.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="speed, memory or host; all without.")] = None,
    x: Annotated[list[int] | None, typer.Option(help="A size of the operator's sweeps; all without.")] = None,
    x_name: Annotated[
        list[str] | None, typer.Option(help="A sweep, by the name of its x axis in the tables; all without.")
    ] = None,
    csv: Annotated[Path, typer.Option(help="The CSV that rows are added to.")] = ledger.DEFAULT_CSV,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace older rows of the same keys.")] = False,
    seconds: Annotated[float, seconds_option(0.0, "How long to sample each call at each size.")] = 0.1,
    plot: Annotated[bool, typer.Option("--plot", help="Draw each operator's picture afterwards.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, xpu; found by itself without.")] = None,
) -> None:
    """Prove every backend of operators at every size, time the proved ones, add the numbers to a CSV."""
    where = resolve_device(device)
    names = _operators(operator or [], all_)
    request = Request(
        dtypes=tuple(_chosen("dtype", dtype, list(DTYPES), parse_dtype)),
        modes=tuple(Mode(name) for name in _chosen("mode", mode, [mode.value for mode in Mode])),
        metrics=tuple(_chosen("metric", metric, METRICS)),
        sizes=tuple(x or ()),
        x_names=tuple(x_name or ()),
        public=backend is None or Backend.CUDA.value in backend,
    )
    console = Console(stderr=True)
    rivals = _rivals(against or [])
    ledger.require_ledger(csv)
    run = Run(where, seconds, describe(where), lambda text: _say(console, text))
    rows: list[BenchRow] = []
    negative = False
    refused = 0
    absent: set[str] = set()
    for name in names:
        try:
            definition = ops.definition(name)
            candidates = _contenders(name, backend, rivals, absent, run)
            measured, wrong = _bench_one(definition, candidates, request, run, csv, overwrite, console)
        except Exception as error:
            # One operator alone is the request; among several it must not cost the others their numbers.
            if len(names) == 1:
                raise
            run.say(f"{name}: {error if isinstance(error, UsageError) else first_line(error)}; not measured")
            measured, wrong = [], True
            refused += isinstance(error, UsageError)
        negative |= wrong
        rows += measured
        _free(where)

    frame = pd.DataFrame([row.model_dump() for row in rows], columns=ledger.COLUMNS)
    _print(frame, rivals)
    if not rows and (refused == len(names) or not (negative or run.negative)):
        raise UsageError(f"nothing was measured: no row added to {csv}")
    run.say(f"{len(rows)} rows added to {csv}" if rows else f"nothing was measured: no row added to {csv}")
    if plot and rows:
        for path in save_overviews(ledger.read(csv), sorted(frame["kernel_name"].unique()), csv.parent):
            typer.echo(path)
    if negative or run.negative:
        raise typer.Exit(1)


def _operators(wanted: list[str], every: bool) -> list[str]:
    known = ops.operator_names()
    if every == bool(wanted):
        expected = "either operators or --all, not both" if every else "operators or --all"
        raise UsageError(f"expected {expected}; the operators are {', '.join(known)}")
    for name in wanted:
        if name not in known:
            raise unknown("operator", name, known)
    return known if every else list(dict.fromkeys(wanted))


def _chosen(kind: str, wanted: list[str] | None, known: Sequence[str], parse: Callable[[str], str] = str) -> list[str]:
    """The wanted names in the order of `known`, or all of them; raises UsageError for any other name."""
    names = [parse(name) for name in wanted or known]
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)
    return [name for name in known if name in names]


def _rivals(against: list[str]) -> list[str]:
    """The names after --against, one by one, `all` for every peer that an operator has; raises UsageError for one that
    none has."""
    peers = sorted({library for name in ops.operator_names() for library in ops.peers(name)})
    names = list(dict.fromkeys(each for name in against for each in (peers if name == EVERYONE else [name])))
    known = {EVERYONE, *peers, *(backend.value for backend in Backend)}
    for name in names:
        if name not in known:
            raise unknown("name after --against", name, known)
    return names


def _contenders(
    operator: str, backends: list[str] | None, rivals: list[str], absent: set[str], run: Run
) -> list[Implementation]:
    """Backends, then peers. A library that is not installed is said once, in one line that tells how to get it."""
    own = [backend.value for backend in ops.backends(operator)]
    wanted = None if backends is None else [*backends, *(name for name in rivals if name in own)]
    found = implementations(operator, wanted)
    for library in rivals:
        if library in ops.peers(operator):
            try:
                found.append(peer(operator, library))
            except PeerAbsent as error:
                if library not in absent:
                    run.say(str(error))
                absent.add(library)
    return found


def _bench_one(
    operator: Operator,
    candidates: list[Implementation],
    request: Request,
    run: Run,
    csv: Path,
    overwrite: bool,
    console: Console,
) -> tuple[list[BenchRow], bool]:
    """The rows of one operator, each point's added to the CSV at once, and whether a backend of ours failed its proof.

    All points are proved before the first is timed: a backend of ours that is wrong at one size is believed at none.
    Runs side by side prove at the same time and time one after another.
    """
    at = points(operator, request, run.device.type)
    proofs = Proofs(operator, implementation(operator.name, Backend.EAGER.value), run.device, run.say)
    rows: list[BenchRow] = []
    with _progress(console) as progress:
        task = progress.add_task(f"proving {operator.name}", total=len(at))
        crowded = []
        with turn(run.device, TURN_SECONDS, state_folder(), shared=True):
            for point in at:
                if not proofs.add(point, candidates, alone=run.device.type == "cpu"):
                    crowded.append(point)
                    _free(run.device)
                progress.advance(task)
            _free(run.device)
        task = progress.add_task(f"timing {operator.name}", total=sum(len(point.modes) for point in at))
        with turn(run.device, TURN_SECONDS, state_folder()):
            for point in crowded:
                proofs.add(point, candidates, alone=True)
            for point in at:
                for mode in point.modes:
                    proved = proofs.timeable(point, mode, candidates)
                    measured = run.measure(operator, point, mode, proved) if proved else []
                    if measured:
                        ledger.append(csv, measured, overwrite=overwrite)
                    rows += measured
                    progress.advance(task)
    return rows, proofs.negative


def _free(device: torch.device) -> None:
    """Gives the device's unused memory back to runs beside this one."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _print(frame: pd.DataFrame, rivals: list[str]) -> None:
    console = table_console()
    for grid in grids(frame):
        console.print(_table(grid))
    notes = {name: ops.peer_notes(name) for name in frame["kernel_name"].unique() if name in ops.operator_names()}
    present = set(frame["kernel_provider"])
    for operator, by_library in notes.items():
        for library, note in by_library.items():
            if library in present:
                console.print(f"{operator}, {library}: {note}", markup=False, soft_wrap=True)
    for line in verdict(frame) if rivals else ():
        console.print(line, markup=False, soft_wrap=True)


def _table(grid: Grid) -> Table:
    table = Table(title=grid.title, title_justify="left")
    for name in (grid.size_name, *(["floor"] if grid.floored else []), *grid.providers):
        table.add_column(name, justify="right")
    for line in grid.lines:
        cells = [f"[bold]{cell}[/]" if index == line.best else cell for index, cell in enumerate(line.cells)]
        table.add_row(line.size, *([line.least] if grid.floored else []), *cells)
    return table
