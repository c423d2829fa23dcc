"""`kernelyard ladder OP`: the same operator in every backend, in one table."""

from typing import Annotated

import typer
from rich.console import Console

from kernelyard import ops
from kernelyard.core.environment import resolve_device
from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Status
from kernelyard.core.workload import Mode, parse_dtype
from kernelyard.judge.floor import floor, measure_ceilings
from kernelyard.judge.prove import REFUSED
from kernelyard.ladder.climb import climb
from kernelyard.report.console import table_console
from kernelyard.report.ladder import ceiling_line, ladder_table
from kernelyard.report.shape import parse_shape
from kernelyard.suites.library import implementation, implementations


def ladder(
    operator: Annotated[str, typer.Argument(metavar="OP", help="The operator, as `kernelyard list` names it.")],
    shape: Annotated[str | None, typer.Option(help="Shape of the leading input, such as 8192x4096.")] = None,
    dtype: Annotated[str | None, typer.Option(help="fp32, bf16 or fp16.")] = None,
    mode: Annotated[Mode, typer.Option(help="What is timed; forward and gradients are always proved.")] = Mode.FORWARD,
    backend: Annotated[list[str] | None, typer.Option(help="Only these backends: cuda,triton.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, xpu; by default what is there.")] = None,
) -> None:
    """Cost and floor first, then every backend: proved, timed, how far it is from the floor; the last line is JSON."""
    where = resolve_device(device)
    definition = ops.definition(operator)
    candidates = implementations(operator, backend)
    standard = definition.ladder(where.type)
    workload = standard
    if shape is not None or dtype is not None:
        extents = parse_shape(shape) if shape is not None else standard.shape
        workload = definition.workload_of(extents, parse_dtype(dtype) if dtype is not None else standard.dtype)

    cost = definition.cost(workload, mode)
    least = floor(cost, measure_ceilings(where, workload.dtype, matrix=cost.matrix))
    console = table_console()
    console.print(ceiling_line(operator, workload.label, mode.value, cost, least), soft_wrap=True)
    with Console(stderr=True).status("") as status:
        climbed = climb(
            definition, candidates, implementation(operator, "eager"), workload, mode, least, where, status.update
        )
    if all(row.status == REFUSED for row in climbed.rows):
        reasons = "; ".join(f"{row.backend} {row.message}" for row in climbed.rows)
        raise UsageError(f"nothing of {operator} ran: {reasons}")
    console.print(ladder_table(climbed))
    console.print(climbed.environment.line, soft_wrap=True)
    print(climbed.model_dump_json())
    if any(row.status not in (Status.PASSED.value, REFUSED) for row in climbed.rows):
        raise typer.Exit(1)
