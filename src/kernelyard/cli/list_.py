"""`kernelyard list`: what the library holds, and what of it runs here."""

from typing import Annotated

import torch
import typer
from rich.markup import escape
from rich.table import Table

from kernelyard import ops
from kernelyard.core.environment import resolve_device
from kernelyard.core.operator import Implementation, Operator
from kernelyard.report.console import table_console
from kernelyard.suites.library import implementations


def list_(
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, xpu; by default what is there.")] = None,
) -> None:
    """Operators of the library, what gets gradients, and which backends take their inputs on the device."""
    where = resolve_device(device)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("operator", "summary", "gradients", "workloads", "backend", f"on {where}"):
        table.add_column(column)
    for name in ops.operator_names():
        operator = ops.definition(name)
        grid = f"{len(operator.workloads)}, {len(operator.gpu_workloads)} more on a GPU"
        head = [name, operator.summary, " ".join(operator.differentiable), grid]
        for backend in implementations(name):
            table.add_row(*map(escape, [*head, backend.backend, _state(operator, backend, where)]))
            head = [""] * len(head)
    table_console().print(table)


def _state(operator: Operator, backend: Implementation, device: torch.device) -> str:
    """`runs`, or why the backend takes nothing of the operator's grid."""
    reasons = [backend.refusal(*operator.make_inputs(w, device).values()) for w in operator.workloads[:1]]
    return reasons[0] or "runs" if reasons else "no workloads"
