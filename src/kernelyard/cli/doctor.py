"""`kernelyard doctor`: what this machine is, what it can do at most, and whether the sandbox really holds."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.markup import escape
from rich.table import Table

from kernelyard.core.environment import Environment, describe, resolve_device
from kernelyard.core.interpreter import interpreting
from kernelyard.judge.floor import measure_ceilings
from kernelyard.kernels.nvrtc import CompileError, cubin
from kernelyard.report.console import table_console
from kernelyard.report.table import format_gbps, format_seconds
from kernelyard.sandbox.health import Ward
from kernelyard.sandbox.launch import SandboxKind, bubblewrap_problem, choose
from kernelyard.sandbox.witness import witness

# T4, A100 and H100: what the library's CUDA kernels compile for, with or without a GPU.
ARCHITECTURES = ("sm_75", "sm_80", "sm_90a")


def doctor(
    sandbox: Annotated[SandboxKind | None, typer.Option(help="By default the strongest that runs here.")] = None,
    clear: Annotated[bool, typer.Option("--clear-quarantine", help="Take a GPU back that was set aside.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, xpu; by default what is there.")] = None,
) -> None:
    """Device, ceilings measured now, toolchain, and a witness for every layer of the sandbox."""
    where = resolve_device(device)
    console = table_console()
    ward = Ward.usual()
    if clear:
        print(f"{where} is taken back" if ward.clear(where) else f"{where} was not set aside")
    if refusal := ward.refusal(where):
        console.print(refusal, markup=False)
    environment = describe(where)
    console.print(_table("device", _device(environment, where)))
    console.print(_table("toolchain", _toolchain()))
    kind = choose(sandbox, str(where))
    problem = bubblewrap_problem(str(where))
    why = f" (bubblewrap: {problem})" if kind is not SandboxKind.BUBBLEWRAP and problem else ""
    table = Table(title=escape(f"sandbox: {kind.value}{why}"), title_justify="left", box=None, header_style="bold")
    for column in ("layer", "holds", "tried", "what came of it"):
        table.add_column(column)
    witnesses = witness(kind, str(where))
    for record in witnesses:
        holds = "yes" if record.holds else "no" if record.available else "not here"
        table.add_row(*map(escape, (record.layer, holds, record.tried, record.detail)))
    console.print(table)
    if any(record.available and not record.holds for record in witnesses):
        console.print("a layer of the sandbox does not hold: do not judge untrusted code here")
        raise typer.Exit(1)


def _table(title: str, rows: Iterator[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows:
        table.add_row(name, escape(value))
    return table


def _device(environment: Environment, device: torch.device) -> Iterator[tuple[str, str]]:
    yield "device", f"{environment.device}, {environment.vendor}: {environment.device_name}"
    if environment.arch:
        yield "architecture", environment.arch
    if environment.driver:
        yield "driver", environment.driver
    if device.type == "cpu":
        yield "memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB"
    ceilings = measure_ceilings(device, "float32" if device.type == "cpu" else "bfloat16", matrix=True)
    beside = f", datasheet {format_gbps(ceilings.datasheet_gbps)}" if ceilings.datasheet_gbps else ""
    yield "copy", f"{format_gbps(ceilings.copy_gbps)} measured{beside}"
    product = "fp32" if device.type == "cpu" else "bf16"
    yield "matrix product", f"{ceilings.tflops or 0:.3g} TFLOP/s measured in {product}"
    yield "date", environment.date


def _toolchain() -> Iterator[tuple[str, str]]:
    environment = describe(torch.device("cpu"))
    yield "torch", environment.torch
    interpreted = " (its interpreter: TRITON_INTERPRET=1)" if interpreting() else ""
    yield "triton", f"{environment.triton or 'not installed'}{interpreted}"
    yield "NVRTC", _nvrtc()
    for program, use in (("g++", "torch.compile on a CPU"), ("nvcc", "load_inline"), ("ninja", "load_inline")):
        yield program, shutil.which(program) or f"not found; only {use} needs it"


def _nvrtc() -> str:
    """Compiles a kernel for every architecture, past the cache."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cu"
        source.write_text(f'// {folder}\nextern "C" __global__ void probe(float* g) {{ g[threadIdx.x] = VALUE; }}\n')
        try:
            for arch in ARCHITECTURES:
                cubin(source, (("VALUE", 1),), arch)
        except (CompileError, ImportError, RuntimeError) as error:
            return f"fails: {error}"
    return f"compiles for {', '.join(ARCHITECTURES)}, {format_seconds(time.perf_counter() - begin)} together"
