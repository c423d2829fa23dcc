"""`kernelyard plot`: draw what `bench` wrote, and put its tables into a document."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernelyard.core.environment import describe, resolve_device
from kernelyard.core.errors import UsageError
from kernelyard.core.folders import check_folder
from kernelyard.report import ledger, markers
from kernelyard.report.overview import save_overviews
from kernelyard.report.plots import charts, save, select
from kernelyard.report.results import write_section


def plot(
    kernel_name: Annotated[list[str] | None, typer.Option(help="A kernel, as the CSV names it.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every kernel in the CSV.")] = False,
    metric_name: Annotated[
        str | None, typer.Option(help="speed, memory or host, in detail: a PNG for each mode and configuration.")
    ] = None,
    kernel_operation_mode: Annotated[
        list[str] | None, typer.Option(help="In detail: forward, backward or full; every mode in the CSV without.")
    ] = None,
    extra_config_filter: Annotated[
        str | None, typer.Option(help="In detail: a part of the configuration's text, or KEY=VALUE: dtype=bf16.")
    ] = None,
    csv: Annotated[Path, typer.Option(help="The CSV that `bench` wrote.")] = ledger.DEFAULT_CSV,
    out: Annotated[Path | None, typer.Option(help="Folder of the PNGs; the CSV's own without.")] = None,
    table: Annotated[
        Path | None, typer.Option(help="A Markdown file in which to renew the kernels' pictures and tables.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="A part of the name in the CSV, such as H100; cpu or cuda: the one of this machine."),
    ] = None,
    display: Annotated[bool, typer.Option("--display", help="Open the PNGs too.")] = False,
) -> None:
    """Draw benchmarks: one PNG a kernel, or with --metric-name one for each mode and configuration; paths on stdout."""
    if out is not None:
        check_folder(out)
    frame = ledger.read(csv)
    if frame.empty:
        raise UsageError(f"{csv} holds no row; `kernelyard bench` adds some")
    if all_ == bool(kernel_name):
        raise UsageError(f"expected {'either --kernel-name or --all, not both' if all_ else '--kernel-name or --all'}")
    kernels = sorted(frame["kernel_name"].unique()) if all_ else list(dict.fromkeys(kernel_name or ()))
    if table is not None:
        markers.read(table)
    if device is not None and device.partition(":")[0] in ("cpu", "cuda", "xpu"):
        device = describe(resolve_device(device)).device_name
    folder = out or csv.parent
    if metric_name is None and not kernel_operation_mode and extra_config_filter is None:
        paths = save_overviews(frame, kernels, folder, device)
    else:
        metric, modes = metric_name or "speed", kernel_operation_mode or ()
        selected = [select(frame, kernel, metric, modes, extra_config_filter, device) for kernel in kernels]
        paths = [save(chart, folder) for rows in selected for chart in charts(rows)]
    for path in paths:
        typer.echo(path)
    if table is not None:
        for kernel in kernels:
            write_section(table, frame, kernel, folder)
        typer.echo(table)
    if display and not _has_display():
        typer.echo("--display: there is no display here; the PNGs are where the lines above say", err=True)
    elif display:
        for path in paths:
            typer.launch(str(path))


def _has_display() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
