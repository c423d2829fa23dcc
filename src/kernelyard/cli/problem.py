"""`kernelyard problem check FILE...`: whether a problem can tell a right answer from a wrong one."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kernelyard import ops
from kernelyard.core.amounts import seconds_option
from kernelyard.core.environment import describe, resolve_devices
from kernelyard.core.errors import UsageError
from kernelyard.core.workload import DTYPES, parse_dtype
from kernelyard.judge.admission import Admission, admit
from kernelyard.judge.room import make_room
from kernelyard.judge.size import free_memory
from kernelyard.report import markers
from kernelyard.report.admission import admission_lines, admission_table
from kernelyard.suites.admission import admit_all, problem_files
from kernelyard.suites.degenerate import enter
from kernelyard.suites.kernelbench import load_problem
from kernelyard.suites.operators import operator_problem

problem = typer.Typer(help="Problems: what a solution is judged by.", no_args_is_help=True)


@problem.callback()
def _problems() -> None:
    """Problems: what a solution is judged by."""


@problem.command()
def check(
    file: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="Problem files, and folders of them. They run here.")
    ] = None,
    op: Annotated[list[str] | None, typer.Option(help="An operator of the library; `all` for every one.")] = None,
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16: of weights and floating-point inputs.")] = "fp32",
    seconds: Annotated[float, seconds_option(1.0, "For each problem; looked at between questions.")] = 60.0,
    jobs: Annotated[int, typer.Option(min=1, help="Problems at once on a device, which share its memory.")] = 1,
    gpus: Annotated[int, typer.Option(min=1, help="How many devices share the files.")] = 1,
    table: Annotated[Path | None, typer.Option(help="A Markdown file in which to renew the table.")] = None,
    mark: Annotated[bool, typer.Option("--mark", help="Enter the degenerate ones in the package's table.")] = False,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON for each problem, last of stdout.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, xpu; by default what is there.")] = None,
) -> None:
    """Hold wrong answers that cost nothing - zeros, a constant, half precision - against a problem's questions.

    Exit code 0 if every problem tells them from the reference, 1 if one does not, 2 if none could be looked at, or one
    that was named not be loaded. Ctrl-C ends it with what was found so far.
    """
    devices, name = resolve_devices(device, gpus), parse_dtype(dtype)
    where, here = devices[0], describe(devices[0])
    places = [here, *(describe(each).model_copy(update={"date": here.date}) for each in devices[1:])]
    files = problem_files(file or ())
    operators = [each for wanted in op or () for each in (ops.operator_names() if wanted == "all" else [wanted])]
    if not files and not operators:
        raise UsageError("expected problem files, folders of them, or --op")
    if table is not None:
        markers.demand(table, f"admission:{where.type}")
    groups: dict[str, list[Admission]] = {}
    left_out = 0
    with Console(stderr=True).status("") as status:
        for each in operators:
            status.update(each)
            made = operator_problem(each, name, where.type)
            groups.setdefault("library", []).append(
                admit(made, environment=here, dtype=DTYPES[name], memory_bytes=free_memory(where), seconds=seconds)
            )
        make_room(where)  # the files are for other processes
        if len(files) == 1:
            status.update(files[0].name)
            made = load_problem(files[0])
            record = admit(made, environment=here, dtype=DTYPES[name], memory_bytes=free_memory(where), seconds=seconds)
            groups.setdefault(files[0].parent.name, []).append(record)
        elif files:
            found = dict[Path, Admission]()
            try:
                for path, record in admit_all(files, environments=places, dtype=name, seconds=seconds, jobs=jobs):
                    found[path] = record
                    status.update(f"{len(found)} of {len(files)}, last {path.name}")
            except KeyboardInterrupt:
                left_out = len(files) - len(found)
            for path in files:
                if path in found:
                    groups.setdefault(path.parent.name, []).append(found[path])

    records = [record for group in groups.values() for record in group]
    for record in records:
        print("\n".join(admission_lines(record)))
    if table is not None and not left_out:
        markers.replace(table, f"admission:{where.type}", admission_table(groups))
    if mark and not left_out:
        enter(records)
    if json:
        for record in records:
            print(record.model_dump_json())
    if left_out:
        print(f"interrupted: {left_out} of {len(files)} files not looked at, no table written", file=sys.stderr)
        raise KeyboardInterrupt
    if any(record.status == "invalid_problem" for record in records):
        raise typer.Exit(1)
    named = {path.name for path in file or () if not path.is_dir()}
    missing = any(record.status == "not_loaded" and record.problem in named for record in records)
    if missing or all(record.status in ("skipped", "not_loaded") for record in records):
        raise typer.Exit(2)
