"""Where this library is slower than it promises to be: than its targets, than the best of the others, and than eager
on the host."""

import json
import math
from collections import Counter
from collections.abc import Iterator

import pandas as pd

from kernelyard import ops
from kernelyard.report import ledger
from kernelyard.report.table import format_percent, format_size

KERNELS = ("triton", "cuda")
"""Ours, of which the faster counts."""
TOLERANCE = 2.0
"""Percent. Medians of interleaved calls agree to half a percent between runs; two is no accident."""
TARGETS_DEVICE, TARGETS_DTYPES = "H100", ("torch.bfloat16", "torch.float32")
UNSTEADY = 1.15
"""Of steady rows the median is within 2 % of it, and of those that wait for a host it was up to 6 times as much."""
CELL = ["kernel_name", "extra_benchmark_config_str", "kernel_operation_mode", "x_name", "x_value"]


def verdict(frame: pd.DataFrame) -> list[str]:
    """How many cells reach their operator's target, and a line for each that does not; one for every cell in which the
    faster of triton and cuda is over 2 % slower than the fastest other of the same run, worst first, or one that says
    there is none, and beside how many each was; who was timed in another run; whose medians are no steady ones; then
    the same for the public call's host time and eager's.

    `frame` holds one row for each key. Nothing is said where there is nothing to compare.
    """
    return [*_promised(frame), *_speed(frame), *_unsteady(frame), *_host(frame)]


def _promised(frame: pd.DataFrame) -> list[str]:
    cells, short = 0, list[str]()
    for name, rows in _cells(frame[frame["kernel_provider"].isin(KERNELS)], "speed"):
        wanted, best = _target(rows.iloc[0]), float(rows["percent_of_floor"].max())
        if wanted is None:
            continue
        cells += 1
        if best < wanted:
            # Cut, not rounded: 93.97 is short of 94.
            short.append(f"short of its target: {name}, {math.floor(100 * best) / 100:.2f} % ({wanted:g})")
    return [f"{cells - len(short)} of {cells} cells with a target reach it", *short] if cells else []


def _target(row: pd.Series) -> float | None:
    kernel, dtype = str(row["kernel_name"]), json.loads(str(row["extra_benchmark_config_str"])).get("dtype")
    if TARGETS_DEVICE not in str(row["gpu_name"]) or dtype not in TARGETS_DTYPES or kernel not in ops.operator_names():
        return None
    asked = (row["x_name"], row["kernel_operation_mode"])
    targets = [target for target in ops.definition(kernel).targets if (target.x_name, target.mode.value) == asked]
    return next((target.percent(float(row["x_value"])) for target in targets), None)


def _speed(frame: pd.DataFrame) -> list[str]:
    slower: list[tuple[float, str]] = []
    cells = 0
    compared, apart = Counter[str](), Counter[str]()
    for name, rows in _cells(frame, "speed"):
        of_kernels = rows["kernel_provider"].isin(KERNELS)
        if not of_kernels.any():
            continue
        best = rows[of_kernels].sort_values("y_value_50").iloc[0]
        # What was interleaved shares the copy that was timed between the calls; in two runs it can be equal by chance.
        same_copy = (rows["copy_gbps"] == best["copy_gbps"]) | (rows["copy_gbps"].isna() & pd.isna(best["copy_gbps"]))
        beside = same_copy & (rows["commit"].fillna("") == (best["commit"] if pd.notna(best["commit"]) else ""))
        apart.update(rows[~beside & ~of_kernels]["kernel_provider"])
        rivals = rows[beside & ~of_kernels].sort_values("y_value_50")
        if rivals.empty:
            continue
        cells += 1
        compared.update(rivals["kernel_provider"])
        rival = rivals.iloc[0]
        behind = 100 * (float(best["y_value_50"]) / float(rival["y_value_50"]) - 1)
        if behind > TOLERANCE:
            slower.append((-behind, f"slower than {rival['kernel_provider']} by {format_percent(behind)}: {name}"))
    lines = [line for _, line in sorted(slower)]
    if cells and not slower:
        names = [name if compared[name] == cells else f"{name} in {compared[name]}" for name in _in_order(compared)]
        lines = [f"nowhere more than {TOLERANCE:g} % slower than the best of {', '.join(names)} ({cells} cells)"]
    if apart and cells:
        of_another = ", ".join(f"{name} in {apart[name]} cells" for name in _in_order(apart))
        lines.append(f"timed apart from the best of triton and cuda, and not compared: {of_another}")
    return lines


def _unsteady(frame: pd.DataFrame) -> list[str]:
    """Whose median is of a host that stumbled, by the rows' own 20th percentiles."""
    speed = frame[frame["metric_name"] == "speed"]
    loose = speed[speed["y_value_50"] > UNSTEADY * speed["y_value_20"]]
    counts = Counter[str](loose["kernel_provider"])
    told = ", ".join(f"{name} in {counts[name]} cells" for name in _in_order(counts))
    return [f"medians beyond {UNSTEADY:g} times the 20th percentile, as where a host stumbles: {told}"] if told else []


def _in_order(names: Counter[str]) -> list[str]:
    return ledger.providers(pd.DataFrame({"kernel_provider": list(names)}))


def _host(frame: pd.DataFrame) -> list[str]:
    above, cells = [], 0
    for name, rows in _cells(frame, "host"):
        medians = rows.set_index("kernel_provider")["y_value_50"].astype(float)
        if {"public", "eager"} <= set(medians.index):
            cells += 1
            behind = 100 * (medians["public"] / medians["eager"] - 1)
            if behind > 0:
                above.append((-behind, f"host time above eager's by {format_percent(behind)}: {name}"))
    if above or not cells:
        return [line for _, line in sorted(above)]
    return [f"host time of the public call nowhere above eager's ({cells} cells)"]


def _cells(frame: pd.DataFrame, metric: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """`softmax bfloat16 forward N=64k`, and the rows there."""
    for _, rows in frame[frame["metric_name"] == metric].groupby(CELL, sort=False):
        first = rows.iloc[0]
        config = ledger.config_label(first["extra_benchmark_config_str"])
        size = f"{first['x_name']}={format_size(float(first['x_value']))}"
        yield f"{first['kernel_name']} {config} {first['kernel_operation_mode']} {size}", rows
