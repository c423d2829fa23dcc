"""`kernelyard problem check FILE...`: whether a problem can tell a right answer from a wrong one."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from kernelyard import ops
from kernelyard.core.amounts import MOST_JOBS, seconds_option
from kernelyard.core.environment import describe, resolve_devices
from kernelyard.core.errors import UsageError
from kernelyard.core.problem import Problem, Source
from kernelyard.core.workload import DTYPES, parse_dtype
from kernelyard.judge.admission import Admission, admit
from kernelyard.judge.room import make_room
from kernelyard.judge.size import free_memory
from kernelyard.report import markers
from kernelyard.report.admission import admission_lines, admission_table
from kernelyard.suites.admission import admit_all, problem_files
from kernelyard.suites.admission_records import AdmissionRecords
from kernelyard.suites.degenerate import demand_checkout, enter
from kernelyard.suites.kernelbench import EXPECTED, load_problem, read_source
from kernelyard.suites.operators import operator_problem, operator_source

problem = typer.Typer(help="Problems: what a solution is judged by.", no_args_is_help=True)


@problem.callback()
def _problems() -> None:
    """Problems: what a solution is judged by."""


LIBRARY = "library"
"""The operators' group in a table, whose texts are made here and marked nowhere."""
Wanted = str | Path
"""An operator of the library by its name, or a file."""


@problem.command()
def check(
    file: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="Problem files, and folders of them. They run here.")
    ] = None,
    op: Annotated[list[str] | None, typer.Option(help="An operator of the library; `all` for every one.")] = None,
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16: of weights and floating-point inputs.")] = "fp32",
    seconds: Annotated[float, seconds_option(1.0, "For each problem; looked at between questions.")] = 60.0,
    jobs: Annotated[
        int, typer.Option(min=1, max=MOST_JOBS, help="Problems at once on a device, which share its memory.")
    ] = 1,
    gpus: Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="How many devices share the files.")] = 1,
    records: Annotated[
        Path | None, typer.Option(help="A file that keeps each record as it is made; what it decides is not redone.")
    ] = None,
    table: Annotated[Path | None, typer.Option(help="A Markdown file in which to renew the table.")] = None,
    mark: Annotated[bool, typer.Option("--mark", help="Enter what was decided in the checkout's table.")] = False,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON for each problem, last of stdout.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, xpu; by default what is there.")] = None,
) -> None:
    """Hold wrong answers that cost nothing - zeros, a constant, half precision - against a problem's questions.

    Exit code 0 if every problem tells them from the reference, 1 if one does not, 2 if none could be looked at, or one
    that was named not be loaded. Ctrl-C ends it with what was found so far. With --records a problem that was found
    valid or invalid is looked at once, until its text changes; one that was skipped or not loaded is looked at again.
    """
    devices, name = resolve_devices(device, gpus), parse_dtype(dtype)
    files = problem_files(file or ())
    operators = [each for wanted in op or () for each in (ops.operator_names() if wanted == "all" else [wanted])]
    if not files and not operators:
        raise UsageError("expected problem files, folders of them, or --op")
    kept = AdmissionRecords.read(records)
    kind = kept.device_type or devices[0].type
    if table is not None:
        markers.demand(table, f"admission:{kind}")
    if mark:
        demand_checkout()
    if kept.cut_short:
        print(f"{records}: its last line was cut short and is left out", file=sys.stderr)
    wanted: list[Wanted] = [*operators, *files]
    sources = {each: _source(each, name, kind) for each in wanted}
    found = {each: record for each, source in sources.items() if source and (record := kept.find(source, name))}
    left = [each for each in wanted if each not in found]
    if left:
        kept.expect_more(devices[0].type, len(left))
    left_out = 0
    with Console(stderr=True).status("") as status:
        try:
            for each, record in _looked_at(left, devices, name, seconds, jobs, alone=len(files) == 1):
                kept.add(record)
                found[each] = record
                status.update(f"{len(found)} of {len(sources)}, last {record.problem}")
        except KeyboardInterrupt:
            left_out = len(sources) - len(found)

    groups: dict[str, list[Admission]] = {}
    for each in wanted:
        if each in found:
            groups.setdefault(LIBRARY if isinstance(each, str) else each.parent.name, []).append(found[each])
    _report(groups, table=None if left_out else table, kind=kind, mark=mark and not left_out, json=json)
    if left_out:
        print(f"interrupted: {left_out} of {len(sources)} problems not looked at, no table written", file=sys.stderr)
        raise KeyboardInterrupt
    if any(record.status == "invalid_problem" for record in found.values()):
        raise typer.Exit(1)
    named = [found[each] for each in files if each in (file or ())]
    missing = any(record.status == "not_loaded" for record in named)
    if missing or not any(record.is_decided for record in found.values()):
        raise typer.Exit(2)


def _source(wanted: Wanted, dtype: str, device_type: str) -> Source | None:
    """What a record of it is found by; None of a file that cannot be read, which is said when it is looked at."""
    if isinstance(wanted, str):
        return operator_source(wanted, dtype, device_type)
    with suppress(UsageError):
        return read_source(wanted, "problem", EXPECTED)
    return None


def _looked_at(
    wanted: Sequence[Wanted], devices: Sequence[torch.device], dtype: str, seconds: float, jobs: int, *, alone: bool
) -> Iterator[tuple[Wanted, Admission]]:
    """The admission of each, as they end: operators and a file that is `alone` here, files in other processes."""
    where, first = devices[0], describe(devices[0])
    environments = [first, *(describe(each).model_copy(update={"date": first.date}) for each in devices[1:])]

    def admitted(made: Problem) -> Admission:
        memory = free_memory(where)
        return admit(made, environment=first, dtype=DTYPES[dtype], memory_bytes=memory, seconds=seconds)

    for each in wanted:
        if isinstance(each, str):
            yield each, admitted(operator_problem(each, dtype, where.type))
    make_room(where)  # the files are for other processes
    files = [each for each in wanted if isinstance(each, Path)]
    if alone:
        yield from ((each, admitted(load_problem(each))) for each in files)
    else:
        yield from admit_all(files, environments=environments, dtype=dtype, seconds=seconds, jobs=jobs)


def _report(
    groups: Mapping[str, Sequence[Admission]], *, table: Path | None, kind: str, mark: bool, json: bool
) -> None:
    records = [record for group in groups.values() for record in group]
    for record in records:
        print("\n".join(admission_lines(record)))
    if table is not None:
        markers.replace(table, f"admission:{kind}", admission_table(groups))
    if mark:
        enter(record for name, group in groups.items() if name != LIBRARY for record in group)
    if json:
        for record in records:
            print(record.model_dump_json())
