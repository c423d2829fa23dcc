"""`kernelyard list`: what the library holds."""

from rich.console import Console
from rich.table import Table

from kernelyard import ops


def list_() -> None:
    """Operators of the library, their backends and what gets gradients."""
    table = Table(box=None, header_style="bold")
    for column in ("operator", "backends", "gradients", "workloads", "summary"):
        table.add_column(column)
    for name in ops.operator_names():
        operator = ops.definition(name)
        table.add_row(
            name,
            " ".join(backend.value for backend in ops.backends(name)),
            " ".join(operator.differentiable),
            f"{len(operator.workloads)} + {len(operator.gpu_workloads)} on a GPU",
            operator.summary,
        )
    Console().print(table)
