"""Plots of benchmark rows: what each provider took at each size, and how far that is from the least possible."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from kernelyard.core.errors import UsageError, unknown
from kernelyard.core.workload import parse_dtype
from kernelyard.report import ledger
from kernelyard.report.palette import styles
from kernelyard.report.picture import wrapped, write_png
from kernelyard.report.provenance import provenance
from kernelyard.report.table import format_bytes, format_ms, format_size, without_zeros


@dataclass(frozen=True)
class Curve:
    """One provider over the sizes, in the chart's unit; `percent` is of the least, None where that is unknown."""

    provider: str
    x: tuple[float, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    percent: tuple[float | None, ...]


@dataclass(frozen=True)
class Limit:
    """The least possible at each size, and what it rests on."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """Everything a plot shows, before it is drawn."""

    stem: str
    """Of the file's name."""
    title: str
    device: str
    footer: str
    x_label: str
    metric: str
    unit: str
    curves: tuple[Curve, ...]
    limits: tuple[Limit, ...]
    """What was measured first, then what the datasheet says."""


def select(
    frame: pd.DataFrame,
    kernel: str,
    metric: str,
    modes: Sequence[str] = (),
    config: str | None = None,
    device: str | None = None,
) -> pd.DataFrame:
    """The newest rows of a kernel's metric. `config` is a part of the configuration's text, or `key=value` in it;
    `device` a part of the device's name.

    Raises UsageError, naming what the ledger holds, where nothing is left.
    """
    rows = _only(frame, "kernel_name", "kernel", [kernel])
    rows = _only(rows, "metric_name", f"metric of {kernel}", [metric])
    rows = _only(rows, "kernel_operation_mode", f"mode of {kernel} {metric}", modes) if modes else rows
    if config is not None:
        kept = rows[[_matches(text, config) for text in rows["extra_benchmark_config_str"]]]
        if kept.empty:
            present = ", ".join(sorted(rows["extra_benchmark_config_str"].unique()))
            raise UsageError(f"no row of {kernel} {metric} has the configuration {config!r}; expected one of {present}")
        rows = kept
    if device is not None:
        kept = rows[rows["gpu_name"].str.contains(device, case=False, regex=False)]
        if kept.empty:
            present = ", ".join(sorted(rows["gpu_name"].unique()))
            raise UsageError(f"no row of {kernel} {metric} was measured on {device!r}; expected one of {present}")
        rows = kept
    return ledger.latest(rows)


def _only(frame: pd.DataFrame, column: str, kind: str, names: Sequence[str]) -> pd.DataFrame:
    present = sorted(frame[column].unique())
    for name in names:
        if name not in present:
            raise unknown(f"{kind} in the ledger:", name, present) if present else UsageError("the ledger holds no row")
    return frame[frame[column].isin(list(names))]


def _matches(text: str, wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    if not equals:
        return wanted in text
    found = ledger.config_of(text).get(key)
    if key == "dtype" and found is not None:
        return str(found).removeprefix("torch.") == parse_dtype(value)
    # As a title writes it, or as the configuration's JSON does: packed=True, packed=true.
    return found is not None and value in (str(found), json.dumps(found))


def charts(rows: pd.DataFrame) -> list[Chart]:
    """One chart for each mode and configuration of the selected rows, and for each device where there are several.

    Raises UsageError where rows of one chart are in different units, and for a metric that has no chart.
    """
    by = ["kernel_operation_mode", "extra_benchmark_config_str", "gpu_name", "x_name"]
    telling = [name for name in by if name in by[:2] or rows[name].nunique() > 1]
    return [_chart(part, telling) for _, part in rows.groupby(by, sort=True)]


def _chart(rows: pd.DataFrame, telling: Sequence[str]) -> Chart:
    first = rows.iloc[0]
    if first["metric_name"] not in _TITLES:
        raise unknown("metric to draw:", first["metric_name"], _TITLES)
    if rows["metric_unit"].nunique() > 1:
        units = " and ".join(sorted(rows["metric_unit"].unique()))
        raise UsageError(f"rows of {first['kernel_name']} in {units} do not fit one axis")
    config = ledger.config_label(first["extra_benchmark_config_str"])
    parts = {**first, "extra_benchmark_config_str": config}
    return Chart(
        stem="_".join(_slug(str(parts[name])) for name in ("kernel_name", "metric_name", *telling)),
        title=f"{first['kernel_name']} {first['kernel_operation_mode']}, {config}",
        device=first["gpu_name"],
        footer=provenance(rows),
        x_label=f"{first['x_label']} ({first['x_name']})",
        metric=first["metric_name"],
        unit=first["metric_unit"],
        curves=tuple(_curve(name, rows) for name in ledger.providers(rows)),
        limits=_LIMITS.get(first["metric_name"], lambda rows: ())(rows),
    )


def _slug(text: str) -> str:
    # A minus is kept beside what stands for the sign before it: dim=-1 is dim--1, and dim=1 is dim-1.
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-")


def _curve(provider: str, chart_rows: pd.DataFrame) -> Curve:
    rows = chart_rows[chart_rows["kernel_provider"] == provider].sort_values("x_value")
    share = rows["percent_of_floor"].astype(float)
    if rows.iloc[0]["metric_name"] == "memory":
        share = 100 * rows["bytes"].astype(float) / (rows["y_value_50"] * 1e6)
    if rows.iloc[0]["metric_name"] == "host":
        eager = chart_rows[chart_rows["kernel_provider"] == "eager"].set_index("x_value")["y_value_50"]
        share = 100 * rows["x_value"].map(eager).astype(float) / rows["y_value_50"]
    return Curve(
        provider=provider,
        x=tuple(rows["x_value"]),
        middle=tuple(rows["y_value_50"]),
        low=tuple(rows["y_value_20"]),
        high=tuple(rows["y_value_80"]),
        percent=tuple(float(value) if math.isfinite(value) else None for value in share),
    )


def _speed_limits(rows: pd.DataFrame) -> tuple[Limit, ...]:
    """In ms. Runs of different days measured different copies: the median of them stands for all."""
    sheet = rows["datasheet_gbps"].dropna()
    paper = rows["bytes"] / rows["datasheet_gbps"] / 1e6
    return (
        *_limit("speed of light, from the copy measured", rows, rows["floor_ms"]),
        *_limit(f"datasheet, {sheet.iloc[0]:.0f} GB/s" if len(sheet) else "", rows, paper),
    )


def _memory_limits(rows: pd.DataFrame) -> tuple[Limit, ...]:
    return _limit("least: the results alone", rows, rows["bytes"] / 1e6)


_LIMITS = {"speed": _speed_limits, "memory": _memory_limits}


def _limit(label: str, rows: pd.DataFrame, values: pd.Series) -> tuple[Limit, ...]:
    known = values.astype(float).groupby(rows["x_value"]).median().dropna()
    return (Limit(label, tuple(known.index), tuple(known)),) if len(known) else ()


def save(chart: Chart, folder: Path) -> Path:
    """Draws a chart into `folder`, over any older picture of it, and returns the PNG's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{chart.stem}.png"
    write_png(path, draw(chart), dpi=150)
    return path


def draw(chart: Chart) -> Figure:
    """Measured values on the left, percent of the least possible on the right."""
    figure = Figure(figsize=(11, 5.2), layout=ConstrainedLayoutEngine(rect=(0.005, 0.09, 0.99, 0.80)))
    left, right = figure.subplots(1, 2)
    looks = styles([curve.provider for curve in chart.curves])
    for i_curve, curve in enumerate(chart.curves):
        style = looks[curve.provider]
        # Later markers are smaller, so that a curve lying exactly under another still shows at its points.
        size = style.size + len(chart.curves) - 1 - i_curve
        look: dict[str, Any] = {
            "color": style.color, "marker": style.marker, "markersize": size, "linewidth": style.width,
        }  # fmt: skip
        left.fill_between(curve.x, curve.low, curve.high, color=style.color, alpha=0.18, linewidth=0)
        left.plot(curve.x, curve.middle, label=curve.provider, **look)
        right.plot(curve.x, [float("nan") if value is None else value for value in curve.percent], **look)
    for limit, (dashes, width) in zip(chart.limits, (("--", 1.3), (":", 1.0)), strict=False):
        left.plot(limit.x, limit.y, color="#111111", label=limit.label, zorder=1, linestyle=dashes, linewidth=width)
    _finish_left(left, chart)
    _finish_right(right, chart)
    for axes in (left, right):
        _finish_x(axes, chart)
    figure.text(0.012, 0.955, chart.title, fontsize=13, fontweight="bold", va="center", parse_math=False)
    figure.text(0.985, 0.955, chart.device, fontsize=10, color="#333333", va="center", ha="right", parse_math=False)
    figure.legend(
        loc="upper left", bbox_to_anchor=(0.005, 0.945), ncols=8, frameon=False, fontsize=9, columnspacing=1.4
    )
    figure.text(
        0.012,
        0.045,
        wrapped(chart.footer, 0.976 * figure.get_figwidth(), 7.5),
        fontsize=7.5,
        color="#555555",
        va="center",
        parse_math=False,
    )
    return figure


_TITLES = {
    "speed": ("median time, band p20 to p80", "percent of the speed of light"),
    "memory": ("peak memory of a call", "the least as percent of the peak"),
    "host": ("the host's time per call, band p20 to p80", "eager's time as percent of the call's"),
}


def _finish_left(axes: Axes, chart: Chart) -> None:
    values = [value for curve in chart.curves for value in (*curve.low, *curve.high)]
    values += [value for limit in chart.limits for value in limit.y]
    # Under a decade of values, the usual 1-2-5 ticks would leave one or two labels.
    steps = (1, 2, 5) if max(values) > 10 * min(values) else (1, 1.5, 2, 3, 4, 5, 6, 8)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _quantity(value, chart.unit)))
    axes.set_title(_TITLES[chart.metric][0], fontsize=10)


def _finish_right(axes: Axes, chart: Chart) -> None:
    known = [value for curve in chart.curves for value in curve.percent if value is not None]
    if not known:
        axes.text(0.5, 0.5, "no floor is known for these rows", transform=axes.transAxes, ha="center", color="#555555")
    axes.axhline(100, color="#111111", linestyle="--", linewidth=1.3, zorder=1)
    axes.set_ylim(0, max([105.0, *[1.05 * value for value in known]]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.set_title(_TITLES[chart.metric][1], fontsize=10)


def _finish_x(axes: Axes, chart: Chart) -> None:
    sizes = sorted({x for curve in chart.curves for x in curve.x})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sizes[:: -(-len(sizes) // 9)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(value)))
    axes.set_xlabel(chart.x_label, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _quantity(value: float, unit: str) -> str:
    """A tick's label."""
    known = {"ms": format_ms, "MB": lambda megabytes: format_bytes(megabytes * 1e6)}
    return without_zeros(known[unit](value)) if unit in known else f"{value:g} {unit}"
