"""`kernelyard baseline --suite ...`: what torch itself takes, eager and compiled, for every problem of a suite."""

import re
import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kernelyard.campaign.baselines import Baseline, BaselineFolder, Variant
from kernelyard.campaign.doubts import wide
from kernelyard.campaign.measuring import Request, measure_all
from kernelyard.core.amounts import seconds_option
from kernelyard.core.environment import Environment, describe, resolve_device
from kernelyard.core.errors import UsageError
from kernelyard.core.folders import check_folder
from kernelyard.core.plural import counted
from kernelyard.core.workload import SHORT_NAMES, parse_dtype
from kernelyard.report.table import format_ms, format_ratio
from kernelyard.suites.selection import Selection, with_selection
from kernelyard.suites.suite import Entry

# With spaces, so that the help folds it at 80 columns and does not cut it.
ALL = ", ".join(variant.value for variant in Variant)


@with_selection
def baseline(
    selection: Selection,
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16: of weights and floating-point inputs.")] = "fp32",
    variants: Annotated[
        list[Variant] | None,
        typer.Option(metavar="<variants>", help=f"Ways to run the reference; eager always is one. All without: {ALL}."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of all hardware's folders.")] = Path("results/timing"),
    hardware: Annotated[str | None, typer.Option(help="Its folder; by default device and dtype.")] = None,
    train: Annotated[bool, typer.Option("--train", help="In training mode, as KernelBench does it.")] = False,
    again: Annotated[bool, typer.Option("--again", help="What is measured, too: its newest times count.")] = False,
    timeout: Annotated[float, seconds_option(1.0, "Seconds for a problem, compilations included.")] = 900.0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, xpu; by default what is there.")] = None,
) -> None:
    """Measure what is not measured yet, a process a problem; a killed run goes on where it stopped.

    Writes kernelyard.jsonl, every sample with what it holds for, and KernelBench's files beside it. A line on stderr
    says where samples lie wide apart, as beside another program. Exit code 1 where a problem has no time.
    """
    where, name = resolve_device(device), parse_dtype(dtype)
    wanted = tuple(dict.fromkeys([Variant.EAGER, *(variants or Variant)]))
    if hardware is not None and ("/" in hardware or hardware in ("", ".", "..")):
        raise UsageError(f"--hardware {hardware!r}: expected the name of one folder, which is made in {out}")
    check_folder(out)
    suite = selection.load(name, where.type)
    environment = describe(where)
    folder = BaselineFolder.read(out / (hardware or _folder_name(environment, name, train)))
    folder.fits(environment, name, train)
    due: dict[tuple[Variant, ...], list[Entry]] = {}
    measured = 0
    for entry in suite.entries:
        before = folder.find(entry.source.sha256, name, environment.device_name, train)
        tried = before.tried if before is not None else set()
        known = before is not None and before.environment.torch == environment.torch and tried.issuperset(wanted)
        measured += known
        if again or not known:
            # What was tried before is measured anew beside the rest: it takes the old entry's place.
            due.setdefault(tuple(variant for variant in Variant if variant in {*wanted, *tried}), []).append(entry)
    count = sum(map(len, due.values()))
    anew = ", which are measured again" if again and measured else ""
    print(f"{counted(len(suite.entries), 'problem')}, {measured} measured before{anew}; into {folder.folder}")
    if due:
        folder.begin()
    lost = 0
    try:
        with Console(stderr=True).status("") as status:
            runs = (measure_all(entries, Request(where, name, train, each), timeout) for each, entries in due.items())
            for place, (entry, found) in enumerate(chain.from_iterable(runs), 1):
                status.update(f"{place} of {count}, last {entry.name}")
                if isinstance(found, Baseline):
                    folder.add(found)
                else:
                    lost += 1
                print(f"{entry.level}/{entry.name}: {_line(found)}", flush=True)
    finally:
        folder.write_kernelbench()
    stored = (folder.find(entry.source.sha256, name, environment.device_name, train) for entry in suite.entries)
    if said := wide(each for each in stored if each is not None):
        print(f"kernelyard: {said}; expected a quiet machine: measure them --again on one", file=sys.stderr)
    if lost:
        raise typer.Exit(1)


def _folder_name(environment: Environment, dtype: str, train_mode: bool) -> str:
    """`NVIDIA_H100_80GB_HBM3_fp32`."""
    short = next(short for short, name in SHORT_NAMES.items() if name == dtype)
    device = re.sub(r"[^A-Za-z0-9.]+", "_", environment.device_name).strip("_")
    return f"{device}_{short}_train" if train_mode else f"{device}_{short}"


def _line(found: Baseline | str) -> str:
    if isinstance(found, str):
        return f"no time: {found}"
    parts = [f"eager {format_ms(found.times[Variant.EAGER].p50_ms)}"]
    for variant in (variant for variant in found.times if variant is not Variant.EAGER):
        gain = found.gain(variant).mean
        parts.append(f"{variant.value} {format_ms(found.times[variant].p50_ms)} ({format_ratio(gain)})")
    parts += [f"{variant.value} failed: {reason}" for variant, reason in found.failures.items()]
    return ", ".join(parts)
