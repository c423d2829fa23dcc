"""`kernelyard check OP`: prove every backend of an operator on the workload grid."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from kernelyard import ops
from kernelyard.core.environment import describe, resolve_device
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Operator
from kernelyard.core.verdict import worst_of
from kernelyard.core.workload import Workload, parse_dtype
from kernelyard.judge.prove import REFUSED, Answers, Proof, prove
from kernelyard.report.console import table_console
from kernelyard.report.shape import parse_shape
from kernelyard.report.table import format_ratio
from kernelyard.suites.library import implementation, implementations


def check(
    operator: Annotated[str, typer.Argument(metavar="OP", help="The operator, as `kernelyard list` names it.")],
    backend: Annotated[list[str] | None, typer.Option(help="Only these backends: cuda,triton.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Only these dtypes: fp32,bf16,fp16.")] = None,
    shape: Annotated[str | None, typer.Option(help="One shape in place of the grid, such as 8x1000.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, xpu; by default what is there.")] = None,
) -> None:
    """Prove every backend against float64: forward, every gradient by name, side effects, repeatability."""
    where = resolve_device(device)
    definition = ops.definition(operator)
    candidates = implementations(operator, backend)
    honest = implementation(operator, "eager")
    dtypes = list(dict.fromkeys(parse_dtype(name) for name in dtype or ()))
    workloads = [w for w in _grid(definition, shape, where.type, dtypes) if not dtypes or w.dtype in dtypes]
    proofs: list[Proof] = []
    progress = Console(stderr=True)
    for workload in track(
        workloads, f"proving {operator}", console=progress, transient=True, disable=not progress.is_terminal
    ):
        answers = Answers(definition, honest, workload, where)
        proofs += [prove(definition, candidate, honest, workload, where, answers) for candidate in candidates]

    if all(proof.status == REFUSED for proof in proofs):
        reasons = dict.fromkeys(f"{proof.backend} {proof.message}" for proof in proofs)
        raise UsageError(f"nothing of {operator} was proved: {'; '.join(reasons)}")
    wrong = [proof for proof in proofs if not proof.passed and proof.status != REFUSED]
    for proof in wrong:
        print(f"{proof.backend} on {proof.workload}: {proof.status}: {proof.report or proof.message}")
    console = table_console()
    console.print(_summary(operator, [candidate.backend for candidate in candidates], proofs))
    console.print(f"device: {describe(where).line}", markup=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)


def _grid(definition: Operator, shape: str | None, device_type: str, dtypes: list[str]) -> list[Workload]:
    if shape is not None:
        return [definition.workload_of(parse_shape(shape), name) for name in dtypes or ["float32"]]
    return [*definition.workloads, *(definition.gpu_workloads if device_type != "cpu" else ())]


def _summary(operator: str, backends: list[str], proofs: list[Proof]) -> Table:
    table = Table(title=f"{operator}: proved against float64", title_justify="left", box=None, header_style="bold")
    for column in ("backend", "passed", "wrong", "refused", "worst error / eager's own", "where", "why refused"):
        table.add_column(column)
    for backend in backends:
        own = [proof for proof in proofs if proof.backend == backend]
        refused = [proof for proof in own if proof.status == REFUSED]
        passed = [proof for proof in own if proof.passed]
        worst = max(passed, key=_over_honest, default=None)
        table.add_row(
            backend,
            str(len(passed)),
            str(len(own) - len(passed) - len(refused)),
            str(len(refused)),
            format_ratio(_over_honest(worst)) if worst else "-",
            escape(worst.workload) if worst else "-",
            escape(refused[0].message) if refused else "",
        )
    return table


def _over_honest(proof: Proof) -> float:
    worst = worst_of(proof.errors)
    return worst.over_honest or 0.0 if worst else 0.0
