"""Where this library is slower than it promises to be: than the best of the others, and than eager on the host."""

from collections.abc import Iterator

import pandas as pd

from kernelyard.report import ledger
from kernelyard.report.table import format_percent, format_size

KERNELS = ("triton", "cuda")
"""Ours, of which the faster counts."""
TOLERANCE = 2.0
"""Percent. Medians of interleaved calls agree to half a percent between runs; two is no accident."""
CELL = ["kernel_name", "extra_benchmark_config_str", "kernel_operation_mode", "x_name", "x_value"]


def verdict(frame: pd.DataFrame) -> list[str]:
    """One line for every cell in which the faster of triton and cuda is over 2 % slower than the fastest other, worst
    first, or one that says there is none; then the same for the public call's host time and eager's.

    `frame` holds one row for each key. Nothing is said where there is nothing to compare.
    """
    return [*_speed(frame), *_host(frame)]


def _speed(frame: pd.DataFrame) -> list[str]:
    slower, others, cells = [], pd.DataFrame(columns=frame.columns), 0
    for name, medians in _cells(frame, "speed"):
        ours = medians[[each in KERNELS for each in medians.index]]
        rivals = medians.drop(ours.index)
        if ours.empty or rivals.empty:
            continue
        cells += 1
        others = pd.concat([others, pd.DataFrame({"kernel_provider": rivals.index})])
        behind = 100 * (ours.min() / rivals.min() - 1)
        if behind > TOLERANCE:
            slower.append((-behind, f"slower than {rivals.idxmin()} by {format_percent(behind)}: {name}"))
    if slower or not cells:
        return [line for _, line in sorted(slower)]
    names = ", ".join(ledger.providers(others))
    return [f"nowhere more than {TOLERANCE:g} % slower than the best of {names} ({cells} cells)"]


def _host(frame: pd.DataFrame) -> list[str]:
    above, cells = [], 0
    for name, medians in _cells(frame, "host"):
        if {"public", "eager"} <= set(medians.index):
            cells += 1
            behind = 100 * (medians["public"] / medians["eager"] - 1)
            if behind > 0:
                above.append((-behind, f"host time above eager's by {format_percent(behind)}: {name}"))
    if above or not cells:
        return [line for _, line in sorted(above)]
    return [f"host time of the public call nowhere above eager's ({cells} cells)"]


def _cells(frame: pd.DataFrame, metric: str) -> Iterator[tuple[str, pd.Series]]:
    """`softmax bfloat16 forward N=64k`, and the medians there by provider."""
    for _, rows in frame[frame["metric_name"] == metric].groupby(CELL, sort=False):
        first = rows.iloc[0]
        config = ledger.config_label(first["extra_benchmark_config_str"])
        size = f"{first['x_name']}={format_size(float(first['x_value']))}"
        name = f"{first['kernel_name']} {config} {first['kernel_operation_mode']} {size}"
        yield name, rows.groupby("kernel_provider")["y_value_50"].last().astype(float)
