"""One picture of an operator: every mode and dtype of its main sweep, in percent of the speed of light."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kernelyard.core.errors import UsageError, unknown
from kernelyard.report import ledger
from kernelyard.report.palette import OURS, styles
from kernelyard.report.picture import source_of, wrapped, write_png
from kernelyard.report.provenance import provenance
from kernelyard.report.summary import dtype_of, dtypes_of, modes_of, sweeps
from kernelyard.report.table import format_size

LIMIT = "the copy measured between the calls"
PANEL_WIDTH, PANEL_HEIGHT = 3.9, 2.3
"""In inches: three by three panels with their frame are read without scrolling."""
LEAST_WIDTH = 10.5
"""What a legend of eight providers takes."""


def save_overviews(frame: pd.DataFrame, kernels: Sequence[str], folder: Path, device: str | None = None) -> list[Path]:
    """Draws each kernel's picture, one for each device (or those whose name has `device` in it); the PNGs' paths.

    Raises UsageError for a kernel without speeds and floors, and for a device that none was measured on.
    """
    shown = _pictures(frame, kernels, device)
    if not shown:
        names = sorted(frame[frame["kernel_name"].isin(kernels)]["gpu_name"].unique())
        raise UsageError(f"no device in the ledger has {device!r} in its name; expected a part of {', '.join(names)}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in shown.items():
        write_png(folder / name, draw_overview(rows), dpi=130, source=_fingerprint(rows))
    return [folder / name for name in shown]


def stale_pictures(frame: pd.DataFrame, folder: Path) -> list[str]:
    """Names of the pictures that a ledger's kernels have, and that are not there or show other rows."""
    kernels = sorted(frame[frame["percent_of_floor"].notna()]["kernel_name"].unique())
    shown = _pictures(frame, kernels)
    return [name for name, rows in shown.items() if source_of(folder / name) != _fingerprint(rows)]


def _pictures(frame: pd.DataFrame, kernels: Sequence[str], device: str | None = None) -> dict[str, pd.DataFrame]:
    """By file name, what each kernel's pictures show: of all devices, or of those whose name has `device` in it."""
    return {
        picture_name(frame, kernel, name): rows
        for kernel in kernels
        for name, rows in pictured(frame, kernel).items()
        if device is None or device.lower() in name.lower()
    }


def _fingerprint(rows: pd.DataFrame) -> str:
    """The same wherever the rows are read: pandas' versions differ in a float's last digits."""
    return hashlib.sha256(rows.to_csv(index=False, float_format="%.6g").encode()).hexdigest()


def pictured(frame: pd.DataFrame, kernel: str) -> dict[str, pd.DataFrame]:
    """By device, what a kernel's picture shows: the newest rows of its main sweep."""
    if kernel not in set(frame["kernel_name"]):
        raise unknown("kernel in the ledger:", kernel, frame["kernel_name"].unique())
    rows = ledger.latest(frame[(frame["kernel_name"] == kernel) & (frame["metric_name"] == "speed")])
    rows = rows[rows["percent_of_floor"].notna()]
    if rows.empty:
        raise UsageError(f"the ledger has no speed of {kernel} with a floor, which its picture needs")
    return {str(device): sweeps(part)[0] for device, part in rows.groupby("gpu_name", sort=True)}


def picture_name(frame: pd.DataFrame, kernel: str, device: str) -> str:
    """`softmax.png`, with the device's name in it where the ledger holds several for this kernel."""
    several = frame[frame["kernel_name"] == kernel]["gpu_name"].nunique() > 1
    parts = [kernel, device] if several else [kernel]
    return "_".join(re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-") for part in parts) + ".png"


def draw_overview(rows: pd.DataFrame) -> Figure:
    """Modes down, dtypes across, all on one scale; `rows` are one sweep's on one device."""
    modes, dtypes, names = modes_of(rows), dtypes_of(rows), ledger.providers(rows)
    width, height = max(PANEL_WIDTH * len(dtypes) + 0.4, LEAST_WIDTH), PANEL_HEIGHT * len(modes) + 1.35
    head, foot = 0.72 / height, 0.34 / height
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(rect=(0.005, foot, 0.99, 1 - head - foot)))
    grid = figure.subplots(len(modes), len(dtypes), sharex=True, sharey=True, squeeze=False)
    of_dtype = pd.Series([dtype_of(row) for _, row in rows.iterrows()], index=rows.index, dtype=object)
    for i_mode, mode in enumerate(modes):
        for i_dtype, dtype in enumerate(dtypes):
            axes = grid[i_mode][i_dtype]
            _panel(axes, rows[(rows["kernel_operation_mode"] == mode) & (of_dtype == dtype)], names)
            if i_mode == 0:
                axes.set_title(dtype, fontsize=10)
            if i_dtype == 0:
                axes.set_ylabel(mode, fontsize=10)
            if i_mode == len(modes) - 1:
                axes.set_xlabel(f"{rows.iloc[0]['x_label']} ({rows.iloc[0]['x_name']})", fontsize=9)
    _finish(grid[0][0], rows)
    first = rows.iloc[0]
    top = 1 - 0.2 / height
    heading = f"{first['kernel_name']}: percent of the speed of light"
    figure.text(0.012, top, heading, fontsize=13, fontweight="bold", va="center", parse_math=False)
    figure.text(0.985, top, first["gpu_name"], fontsize=10, color="#333333", va="center", ha="right", parse_math=False)
    handles, labels = _legend(grid)
    figure.legend(
        handles, labels, loc="center left", bbox_to_anchor=(0.005, 1 - 0.52 / height), ncols=len(labels),
        frameon=False, fontsize=9, columnspacing=1.4,
    )  # fmt: skip
    footer = wrapped(provenance(rows), 0.976 * width, 7)
    figure.text(0.012, foot / 2, footer, fontsize=7, color="#555555", va="center", parse_math=False)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, names: Sequence[str]) -> None:
    looks = styles(names)
    axes.axhline(100, color="#111111", linestyle="--", linewidth=1.1, zorder=1, label=LIMIT)
    # Ours are drawn last, over what they are compared with.
    for name in sorted(names, key=lambda name: name in OURS):
        own = rows[rows["kernel_provider"] == name].sort_values("x_value")
        look = looks[name]
        axes.plot(
            own["x_value"], own["percent_of_floor"], label=name, color=look.color, marker=look.marker,
            linewidth=look.width, markersize=look.size, alpha=look.alpha, zorder=3 if name in OURS else 2,
        )  # fmt: skip


def _finish(axes: Axes, rows: pd.DataFrame) -> None:
    """Scales, which all panels share with this one."""
    sizes = sorted(rows["x_value"].unique())
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sizes[:: -(-len(sizes) // 8)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(value)))
    axes.set_ylim(0, max(110.0, 1.05 * float(rows["percent_of_floor"].max())))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))


def _legend(grid: np.ndarray) -> tuple[list[Artist], list[str]]:
    handles: dict[str, Artist] = {}
    for axes in grid.flat:
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.tick_params(labelsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    order = [*ledger.in_order(handles.keys() - {LIMIT}), LIMIT]
    return [handles[name] for name in order], order
