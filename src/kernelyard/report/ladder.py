"""The ladder as a terminal shows it."""

from rich.markup import escape
from rich.table import Table

from kernelyard.core.operator import Cost
from kernelyard.core.verdict import Floor
from kernelyard.ladder.record import Ladder, LadderRow
from kernelyard.report.table import (
    format_bytes,
    format_count,
    format_error,
    format_gbps,
    format_integer,
    format_ms,
    format_percent,
    format_ratio,
    format_seconds,
    format_spread,
)


def ceiling_line(operator: str, workload: str, mode: str, cost: Cost, floor: Floor) -> str:
    """Bytes, operations, bound and floor: what is known before anything of ours has run."""
    datasheet = f", datasheet {format_gbps(floor.datasheet_gbps)}" if floor.datasheet_gbps else ""
    products = f", matrix product {floor.tflops:.1f} TFLOP/s" if floor.tflops else ""
    return (
        f"{operator} {mode} {workload}\n"
        f"read {format_bytes(cost.read_bytes)} + write {format_bytes(cost.write_bytes)} = {format_bytes(cost.bytes)}"
        f" · {format_count(cost.operations)} operations · bound: {floor.bound}\n"
        f"floor {format_ms(floor.floor_ms)} at the measured copy's {format_gbps(floor.copy_gbps)}{products}{datasheet}"
        "\n"
    )


def ladder_table(ladder: Ladder) -> Table:
    """A row per backend; a dash is what was not measured."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column, justify in (
        ("backend", "left"),
        ("time (p20-p80)", "right"),
        ("GB/s", "right"),
        ("% floor", "right"),
        ("kernels", "right"),
        ("peak", "right"),
        ("max err", "right"),
        ("err/eager", "right"),
        ("compile", "right"),
        ("LOC", "right"),
        ("status", "left"),
    ):
        table.add_column(column, justify=justify, no_wrap=column != "status")  # type: ignore[arg-type]
    for row in ladder.rows:
        table.add_row(*map(escape, _cells(row, row is ladder.fastest)))
    return table


def _cells(row: LadderRow, fastest: bool) -> list[str]:
    spread = format_spread(row.time.p50_ms, row.time.p20_ms, row.time.p80_ms) if row.time else "-"
    status = f"{row.status}: {row.message}" if row.message else row.status
    return [
        row.backend,
        spread,
        format_gbps(row.gbps).removesuffix(" GB/s"),
        format_percent(row.percent_of_floor).removesuffix(" %"),
        format_integer(row.kernels),
        format_bytes(row.peak_bytes),
        format_error(row.error.max_abs if row.error else None),
        format_ratio(row.error.over_honest if row.error else None),
        format_seconds(row.compile_seconds),
        str(row.lines_of_code),
        f"{status}, fastest" if fastest else status,
    ]
