"""Tables of benchmark rows: in full for the terminal, and an operator's section of a document."""

import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from kernelyard import ops
from kernelyard.core.workload import Mode
from kernelyard.report import ledger, markers
from kernelyard.report.overview import picture_name
from kernelyard.report.provenance import provenance
from kernelyard.report.summary import summary
from kernelyard.report.table import NOT_MEASURED, format_bytes, format_ms, format_percent, format_ratio, format_size


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
    floored: bool
    """Whether the metric has a least; the host's time has none."""
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
        first["x_name"],
        ("speed", "memory").index(first["metric_name"]) if first["metric_name"] in ("speed", "memory") else 2,
        modes.index(mode) if mode in modes else len(modes),
    )


def _grid(part: pd.DataFrame) -> Grid:
    first = part.iloc[0]
    names = ledger.providers(part)
    config = ledger.config_label(first["extra_benchmark_config_str"])
    return Grid(
        title=f"{first['kernel_name']} {config} {first['kernel_operation_mode']}: {first['metric_name']}",
        size_name=first["x_name"],
        floored=first["metric_name"] != "host",
        providers=tuple(names),
        lines=tuple(_line(float(x), rows, names) for x, rows in part.groupby("x_value")),  # type: ignore[arg-type]
    )


def _line(x: float, rows: pd.DataFrame, names: list[str]) -> Line:
    by_name = rows.drop_duplicates("kernel_provider", keep="last").set_index("kernel_provider")
    speed = rows.iloc[0]["metric_name"] == "speed"
    eager = float(by_name.loc["eager", "y_value_50"]) if "eager" in by_name.index else None
    known = (rows["floor_ms"] if speed else rows["bytes"]).dropna()
    least = float(known.median()) if len(known) else None
    return Line(
        size=format_size(x),
        least=format_ms(least) if speed else format_bytes(least),
        cells=tuple(_cell(by_name.loc[name], eager) if name in by_name.index else NOT_MEASURED for name in names),
        best=names.index(str(by_name["y_value_50"].idxmin())),
    )


def _cell(row: pd.Series, eager: float | None) -> str:
    """A time and its percent of the floor, a memory, or the host's time and its multiple of eager's."""
    if row["metric_name"] == "host":
        beside = f" ({format_ratio(float(row['y_value_50']) / eager)})" if eager else ""
        return f"{row['y_value_50']:.1f} us{beside}"
    if row["metric_name"] != "speed":
        return format_bytes(float(row["y_value_50"]) * 1e6)
    percent = row["percent_of_floor"]
    share = "" if pd.isna(percent) else f" ({format_percent(float(percent))})"
    return format_ms(float(row["y_value_50"])) + share


def write_section(document: Path, frame: pd.DataFrame, kernel: str, pictures: Path) -> None:
    """Puts a kernel's pictures and tables between its markers in a Markdown file; without them, in a section at its
    end. `pictures` is the folder that holds its PNGs.

    Raises UsageError where the file does not exist, or has only one of the markers.
    """
    text = markers.read(document)
    begin, end = markers.markers(_section(kernel))
    if begin not in text and end not in text:
        text = f"{text.rstrip()}\n\n## {kernel}\n\n{begin}\n{end}\n"
    before, _, after = markers.split(document, text, _section(kernel))
    markers.write(document, f"{before}{_block(document, frame, kernel, pictures)}{after}")


def stale_sections(document: Path, frame: pd.DataFrame, pictures: Path) -> list[str]:
    """The kernels of a ledger whose section of a Markdown file is missing, or not what their rows make."""
    text = markers.read(document)
    kernels = sorted(frame["kernel_name"].unique())
    return [
        kernel
        for kernel in kernels
        if markers.markers(_section(kernel))[0] not in text
        or markers.split(document, text, _section(kernel))[1] != _block(document, frame, kernel, pictures)
    ]


def _section(kernel: str) -> str:
    return f"bench:{kernel}"


def _block(document: Path, frame: pd.DataFrame, kernel: str, pictures: Path) -> str:
    begin, end = markers.markers(_section(kernel))
    rows = ledger.latest(frame[frame["kernel_name"] == kernel])
    notes = ops.peer_notes(kernel) if kernel in ops.operator_names() else {}
    parts = []
    for device, on_device in rows.groupby("gpu_name", sort=True):
        if on_device[on_device["metric_name"] == "speed"]["percent_of_floor"].notna().any():
            picture = pictures / picture_name(frame, kernel, str(device))
            parts.append(f"![{kernel} on {device}]({_relative(picture, document.parent)})")
        parts += [summary(on_device, notes), provenance(on_device)]
    return "\n\n".join([begin, *parts, end])


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
