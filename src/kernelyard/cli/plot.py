"""`kernelyard plot`: draw what `bench` wrote, and put its tables into a document."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernelyard.core.environment import describe, resolve_device
from kernelyard.core.errors import UsageError
from kernelyard.report import ledger
from kernelyard.report.plots import charts, save, select
from kernelyard.report.results import write_tables


def plot(
    kernel_name: Annotated[str, typer.Option(help="The kernel, as the CSV names it.")],
    metric_name: Annotated[str, typer.Option(help="speed or memory.")] = "speed",
    kernel_operation_mode: Annotated[
        list[str] | None, typer.Option(help="forward, backward or full; every mode in the CSV without.")
    ] = None,
    extra_config_filter: Annotated[
        str | None, typer.Option(help="A part of the configuration's text, or KEY=VALUE: dtype=bf16.")
    ] = None,
    csv: Annotated[Path, typer.Option(help="The CSV that `bench` wrote.")] = ledger.DEFAULT_CSV,
    out: Annotated[Path | None, typer.Option(help="Folder of the PNGs; the CSV's own without.")] = None,
    table: Annotated[
        Path | None, typer.Option(help="A Markdown file in which to renew the kernel's tables, all of them.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="A part of the name in the CSV, such as H100; cpu or cuda: the one of this machine."),
    ] = None,
    display: Annotated[bool, typer.Option("--display", help="Open the PNGs too.")] = False,
) -> None:
    """Draw a kernel's benchmarks: one PNG for each mode and configuration, and its path on stdout."""
    frame = ledger.read(csv)
    if table is not None and not table.is_file():
        raise UsageError(f"{table}: no such file; expected a Markdown file to hold the tables")
    if device is not None and device.partition(":")[0] in ("cpu", "cuda", "xpu"):
        device = describe(resolve_device(device)).device_name
    rows = select(frame, kernel_name, metric_name, kernel_operation_mode or (), extra_config_filter, device)
    paths = [save(chart, out or csv.parent) for chart in charts(rows)]
    for path in paths:
        typer.echo(path)
    if table is not None:
        write_tables(table, frame, kernel_name)
        typer.echo(table)
    if display and not _has_display():
        typer.echo("--display: there is no display here; the PNGs are where the lines above say", err=True)
    elif display:
        for path in paths:
            typer.launch(str(path))


def _has_display() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
