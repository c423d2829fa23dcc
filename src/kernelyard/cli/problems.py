"""`kernelyard problems`: what a suite's problems cost at the least, and their references as solutions to them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kernelyard.campaign.selfjudged import write_references
from kernelyard.core.environment import describe, resolve_device
from kernelyard.core.errors import UsageError
from kernelyard.core.plural import counted
from kernelyard.core.workload import parse_dtype
from kernelyard.judge.floor import Ceilings, datasheet_ceilings, measure_ceilings
from kernelyard.report import markers
from kernelyard.report.console import table_console
from kernelyard.report.listing import ceilings_line, listing_head, listing_markdown, listing_notes, listing_table
from kernelyard.suites.listing import Listed, listed
from kernelyard.suites.selection import Selection, with_selection

problems = typer.Typer(help="A suite's problems.", no_args_is_help=True)

ABSENT_GPU = "H100"
"""Whose datasheet the floors rest on where no GPU is at hand and none is named."""


@problems.callback()
def _problems() -> None:
    """A suite's problems."""


@problems.command("list")
@with_selection
def list_(
    selection: Selection,
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16: of weights and floating-point inputs.")] = "fp32",
    gpu: Annotated[str | None, typer.Option(help="Floors by the datasheet of this GPU: H100, 'A100 80GB'.")] = None,
    device: Annotated[str | None, typer.Option(help="Floors by what this device does now; cpu, cuda, xpu.")] = None,
    table: Annotated[Path | None, typer.Option(help="A Markdown file in which to renew the table.")] = None,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON for each problem, last of stdout.")] = False,
) -> None:
    """Parameters, least bytes and operations, bound and floor of every problem, counted on torch's meta device.

    Floors rest on what --device does, or on the datasheet of --gpu; by default on the GPU at hand or an H100's
    datasheet. Problem files are imported here.
    """
    name = parse_dtype(dtype)
    device_type, said, ceilings = _ceilings(gpu, device, name)
    suite = selection.load(name, device_type)
    if table is not None:
        markers.demand(table, f"problems:{suite.name}")
    records: list[Listed] = []
    with Console(stderr=True).status("") as status:
        for record in listed(suite, name, ceilings):
            records.append(record)
            status.update(f"{len(records)} of {len(suite.entries)}, last {record.name}")
    if all(record.floor_ms is None for record in records):
        first = f"{records[0].name} first: {records[0].reason}"
        raise UsageError(f"{suite.name}: no problem can be counted, {first}; expected one at least")
    line = ceilings_line(said, name, ceilings)
    console = table_console()
    console.print(listing_head(suite, records), line, listing_table(records), sep="\n")
    for note in listing_notes(records):
        console.print(note, markup=False, soft_wrap=True)
    if table is not None:
        lacking = [record for record in records if "ModuleNotFoundError" in record.reason]
        if lacking:
            raise UsageError(f"{table}: not renewed, for {lacking[0].name} {lacking[0].reason}")
        markers.replace(table, f"problems:{suite.name}", listing_markdown(suite, records, line))
    if json:
        for record in records:
            print(record.model_dump_json())


@problems.command()
@with_selection
def references(
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Made where it is not there.")],
    selection: Selection,
    dtype: Annotated[str, typer.Option(help="Of the library's operators, as `run` has it.")] = "fp32",
    device: Annotated[str | None, typer.Option(help="Likewise; by default what is there.")] = None,
) -> None:
    """Write every problem's reference as the solution to it, for `kernelyard run`: each has to pass and to be a tie.

    `kernelyard analyze RUN_DIR --table FILE` names those that are not.
    """
    suite = selection.load(parse_dtype(dtype), resolve_device(device).type)
    print(f"{counted(len(write_references(suite, folder)), 'reference')} in {folder}")


def _ceilings(gpu: str | None, device: str | None, dtype: str) -> tuple[str, str, Ceilings]:
    """Type of the device that the floors are for, what they rest on, and the ceilings."""
    if gpu is not None and device is not None:
        raise UsageError("--gpu and --device: expected one of them, for what the floors rest on")
    where = resolve_device(device)
    if gpu is None and (device is not None or where.type != "cpu"):
        return where.type, f"measured on {describe(where).device_name}", measure_ceilings(where, dtype, matrix=True)
    wanted = gpu or ABSENT_GPU
    return "cuda", f"the datasheet of {wanted}", datasheet_ceilings(wanted, dtype)
