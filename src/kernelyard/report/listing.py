"""A suite's problems and their floors: a table for the terminal, and a compact one in Markdown."""

from collections import Counter
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from kernelyard.core.plural import counted
from kernelyard.judge.floor import Ceilings
from kernelyard.report.table import NOT_MEASURED, format_bytes, format_count, format_gbps, format_ms
from kernelyard.suites.degenerate import not_admitted
from kernelyard.suites.listing import Listed
from kernelyard.suites.suite import Suite

COLUMNS = ("problem", "parameters", "bytes", "operations", "bound", "floor", "")
RIGHT = ("parameters", "bytes", "operations", "floor")


def ceilings_line(name: str, dtype: str, ceilings: Ceilings) -> str:
    """What the floors rest on, in one line."""
    rate = f"{ceilings.tflops:.4g} TFLOPS {dtype}" if ceilings.tflops else "no rate of matrix products"
    return f"floors: {name}, {format_gbps(ceilings.copy_gbps)}, {rate}"


def listing_head(suite: Suite, records: Sequence[Listed]) -> str:
    """How many problems, how many of them in full, and the suite's hash."""
    counts = Counter(_extent(record) for record in records)
    parts = [counted(len(records), "problem"), *(f"{count} {kind}" for kind, count in counts.items() if kind)]
    marked = sum(record.degenerate is not None for record in records)
    parts += [f"{marked} degenerate"] if marked else []
    unseen = not_admitted(suite, {record.dtype for record in records})
    if unseen and not any(record.admitted for record in records):
        unseen += " (`kernelyard problem check` finds which are degenerate)"
    parts += [unseen] if unseen else []
    return f"{suite.name}: {', '.join(parts)}; suite {suite.sha256[:16]}"


def listing_table(records: Sequence[Listed]) -> Table:
    """A row a problem, of which `listing_notes` says the rest. Names fold, numbers do not."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in COLUMNS[:-1]:
        name = column == COLUMNS[0]
        table.add_column(column, justify="right" if column in RIGHT else "left", no_wrap=not name, overflow="fold")
    for record in records:
        table.add_row(*map(escape, _cells(record)[:-1]))
    return table


def listing_notes(records: Sequence[Listed]) -> list[str]:
    """A line for each problem that is degenerate, or was not counted in full: which, and why."""
    return [f"{cells[0]}: {cells[-1]}" for cells in map(_cells, records) if cells[-1]]


def listing_markdown(suite: Suite, records: Sequence[Listed], ceilings: str) -> str:
    """The table of a page, a section for each level."""
    parts = [f"{listing_head(suite, records)}.", f"{records[0].dtype}; {ceilings}." if records else ""]
    for level in sorted({record.level for record in records}):
        rows = [_cells(record) for record in records if record.level == level]
        parts += [f"### Level {level}" if level else "", _markdown(rows)]
    return "\n\n".join(part for part in parts if part)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head = [f"| {' | '.join(COLUMNS)} |", f"|{'|'.join('--:' if column in RIGHT else '---' for column in COLUMNS)}|"]
    return "\n".join(head + [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows])


def _cells(record: Listed) -> tuple[str, ...]:
    name = record.name.removesuffix(".py")
    floor = format_ms(record.floor_ms)
    return (
        f"{record.level}/{name}" if record.level else name,
        format_count(record.parameters),
        format_bytes(record.bytes),
        format_count(record.operations),
        record.bound or NOT_MEASURED,
        f">= {floor}" if record.at_least else floor,
        "; ".join(part for part in (_marked(record), _unseen(record)) if part),
    )


def _marked(record: Listed) -> str:
    return f"degenerate: {record.degenerate}" if record.degenerate else ""


def _unseen(record: Listed) -> str:
    return f"answers and operations not counted: {record.reason}" if record.at_least else record.reason


def _extent(record: Listed) -> str:
    if record.at_least:
        return "counted in part"
    return "not counted" if record.floor_ms is None else ""
