"""Tables of benchmark rows: sizes down, backends across; for the terminal and for a document."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from kernelyard.core.errors import UsageError
from kernelyard.core.workload import Mode
from kernelyard.report import ledger
from kernelyard.report.table import NOT_MEASURED, format_bytes, format_ms, format_percent, format_size


@dataclass(frozen=True)
class Line:
    """One size: the least that is possible, then what each provider took."""

    size: str
    least: str
    cells: tuple[str, ...]
    best: int | None
    """Index of the cell with the smallest number."""


@dataclass(frozen=True)
class Grid:
    """One metric of one kernel in one mode and configuration on one device."""

    title: str
    size_name: str
    providers: tuple[str, ...]
    lines: tuple[Line, ...]


def grids(frame: pd.DataFrame) -> list[Grid]:
    """The tables of a frame of newest rows, in the order of dtype, metric and mode."""
    by = [
        "gpu_name",
        "kernel_name",
        "extra_benchmark_config_str",
        "metric_name",
        "kernel_operation_mode",
        "x_name",
    ]
    parts = [part for _, part in frame.groupby(by, sort=False)]
    return [_grid(part) for part in sorted(parts, key=_place)]


def _place(part: pd.DataFrame) -> tuple[object, ...]:
    first = part.iloc[0]
    modes = [mode.value for mode in Mode]
    mode = first["kernel_operation_mode"]
    return (
        first["gpu_name"],
        first["kernel_name"],
        first["extra_benchmark_config_str"],
        first["metric_name"] != "speed",
        modes.index(mode) if mode in modes else len(modes),
    )


def _grid(part: pd.DataFrame) -> Grid:
    first = part.iloc[0]
    names = ledger.providers(part)
    config = ledger.config_label(first["extra_benchmark_config_str"])
    return Grid(
        title=f"{first['kernel_name']} {config} {first['kernel_operation_mode']}: {first['metric_name']}",
        size_name=first["x_name"],
        providers=tuple(names),
        lines=tuple(_line(float(x), rows, names) for x, rows in part.groupby("x_value")),  # type: ignore[arg-type]
    )


def _line(x: float, rows: pd.DataFrame, names: list[str]) -> Line:
    by_name = rows.set_index("kernel_provider")
    speed = rows.iloc[0]["metric_name"] == "speed"
    known = (rows["floor_ms"] if speed else rows["bytes"]).dropna()
    least = float(known.median()) if len(known) else None
    return Line(
        size=format_size(x),
        least=format_ms(least) if speed else format_bytes(least),
        cells=tuple(_cell(by_name.loc[name]) if name in by_name.index else NOT_MEASURED for name in names),
        best=names.index(str(by_name["y_value_50"].idxmin())),
    )


def _cell(row: pd.Series) -> str:
    if row["metric_name"] != "speed":
        return format_bytes(float(row["y_value_50"]) * 1e6)
    percent = row["percent_of_floor"]
    share = "" if pd.isna(percent) else f" ({format_percent(float(percent))})"
    return format_ms(float(row["y_value_50"])) + share


def markdown(frame: pd.DataFrame) -> str:
    """Every table of a frame of newest rows as Markdown, each device under a line that says what it was."""
    parts: list[str] = []
    for _, on_device in frame.groupby("gpu_name", sort=True):
        parts.append(provenance(on_device))
        parts += [_markdown(grid) for grid in grids(on_device)]
    return "\n\n".join(parts)


def _markdown(grid: Grid) -> str:
    header = [grid.size_name, "floor", *grid.providers]
    lines = [_bar(header), _bar(["---:"] * len(header))]
    for line in grid.lines:
        cells = [f"**{cell}**" if index == line.best else cell for index, cell in enumerate(line.cells)]
        lines.append(_bar([line.size, line.least, *cells]))
    return f"**{grid.title}**\n\n" + "\n".join(lines)


def _bar(cells: list[str]) -> str:
    # A pipe in a provider's name would open another column.
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def provenance(frame: pd.DataFrame) -> str:
    """Device, versions, dates and the copy bandwidths that the floors rest on."""
    parts = [
        f"Device {frame['gpu_name'].iloc[0]}",
        *[
            f"{label} {_several(frame[column])}"
            for label, column in (
                ("torch", "torch_version"),
                ("triton", "triton_version"),
                ("CUDA", "cuda_version"),
                ("driver", "driver"),
                ("kernelyard", "kernelyard_version"),
                ("commit", "commit"),
            )
            if frame[column].notna().any()
        ],
        _several(frame["timestamp"].str.slice(0, 10)),
    ]
    timers = (frame["timer"] + ", " + frame["cache"] + " cache").dropna().unique()
    parts += [f"timer {timer}" for timer in timers]
    copies = sorted({f"{gbps:.0f}" for gbps in frame["copy_gbps"].dropna()}, key=float)
    if copies:
        parts.append(
            f"floor: a copy of equal bytes in the same run, {' to '.join(copies[:: len(copies) - 1 or 1])} GB/s"
        )
    return ", ".join(parts) + "."


def _several(values: pd.Series) -> str:
    return " and ".join(sorted(values.dropna().astype(str).unique()))


def write_tables(document: Path, frame: pd.DataFrame, kernel: str) -> None:
    """Puts a kernel's tables between its markers in a Markdown file; without them, in a section at its end.

    Raises UsageError where the file does not exist, or has only one of the markers.
    """
    text = _text(document)
    begin, end = _markers(kernel)
    if begin not in text and end not in text:
        text = f"{text.rstrip()}\n\n## {kernel}\n\n{begin}\n{end}\n"
    before, _, after = _split(document, text, kernel)
    document.write_text(f"{before}{_block(frame, kernel)}{after}")


def stale_tables(document: Path, frame: pd.DataFrame) -> list[str]:
    """The kernels of a ledger whose tables in a Markdown file are missing, or not what its rows make."""
    text = _text(document)
    kernels = sorted(frame["kernel_name"].unique())
    return [
        kernel
        for kernel in kernels
        if _markers(kernel)[0] not in text or _split(document, text, kernel)[1] != _block(frame, kernel)
    ]


def _text(document: Path) -> str:
    if not document.is_file():
        raise UsageError(f"{document}: no such file; expected a Markdown file to hold the tables")
    return document.read_text()


def _markers(kernel: str) -> tuple[str, str]:
    return f"<!-- bench:{kernel}:begin -->", f"<!-- bench:{kernel}:end -->"


def _split(document: Path, text: str, kernel: str) -> tuple[str, str, str]:
    """The text before the markers, from one through the other, and after them."""
    begin, end = _markers(kernel)
    start, stop = text.find(begin), text.find(end)
    if not 0 <= start < stop:
        raise UsageError(f"{document}: expected {begin} and after it {end}")
    return text[:start], text[start : stop + len(end)], text[stop + len(end) :]


def _block(frame: pd.DataFrame, kernel: str) -> str:
    begin, end = _markers(kernel)
    rows = ledger.latest(frame[frame["kernel_name"] == kernel])
    return f"{begin}\n\n{markdown(rows)}\n\n{end}"
