"""`kernelyard analyze RUN`: the numbers of a run, with what they could as well have been."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kernelyard.campaign.analysis import P_VALUES
from kernelyard.campaign.comparison import Side, compare
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.runs import Run, answers_of, flagged, read_run, side_of
from kernelyard.campaign.runs import analyze as analyzed
from kernelyard.campaign.selfjudged import self_judged
from kernelyard.core.errors import UsageError
from kernelyard.core.folders import check_folder
from kernelyard.core.whole_file import check_place, write_whole
from kernelyard.core.workload import parse_dtype
from kernelyard.report import markers
from kernelyard.report.campaign import analysis_text, comparison_text
from kernelyard.report.campaign_html import render
from kernelyard.report.campaign_plots import save_pictures
from kernelyard.report.console import table_console
from kernelyard.report.selfjudged import self_judged_table
from kernelyard.suites.degenerate import degenerate, not_admitted
from kernelyard.suites.selection import Selection, numbers, with_selection
from kernelyard.suites.suite import Suite

STORED = "analysis.json"


@with_selection
def analyze(
    selection: Selection,
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="A folder of `kernelyard run`, or KernelBench's.")
    ] = None,
    baseline: Annotated[
        list[Path] | None, typer.Option(help="A folder of `kernelyard baseline` or of KernelBench's, or its file.")
    ] = None,
    p: Annotated[list[float] | None, typer.Option(min=0.0, help="fast_p beside 0, 1 and 2: 0.5,1.5.")] = None,
    k: Annotated[list[int] | None, typer.Option(min=1, help="pass@k, as in 1,5; by default 1.")] = None,
    against: Annotated[
        tuple[Path, Path] | None, typer.Option("--compare", metavar="RUN_A RUN_B", help="Which differences are real.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The record as one line of JSON, the last of stdout.")] = False,
    html: Annotated[Path | None, typer.Option(help="A page with every verdict, its evidence and its source.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Pictures for a paper.")] = None,
    table: Annotated[
        Path | None, typer.Option(help="A Markdown file in which to renew what came of `problems references`.")
    ] = None,
) -> None:
    """Print and store (analysis.json) fast_p, pass@k, speedups, endings and the share of the floor.

    The suite's options say which problems there are, so that one without an answer counts, and which are degenerate.
    """
    if (run is None) == (against is None):
        raise UsageError("expected the folder of a run, or --compare RUN_A RUN_B")
    if html is not None:
        check_place(html)
    if png is not None:
        check_folder(png)
    opponents = Opponents.read(baseline or ())
    p_values = sorted({*P_VALUES, *(p or ())})
    levels = numbers(selection.level, "--level") if selection.level else ()
    console = table_console()
    if against is not None:
        if html or png or table or k:
            raise UsageError("--html, --png, --table and --k are of one run, not of --compare")
        runs = [_read(folder, levels) for folder in against]
        a, b = (_side(one, opponents, selection) for one in runs)
        marked = dict.fromkeys(place for one in runs for place in _degenerate(one, None))
        compared = compare(a, b, p_values, degenerate=marked)
        console.print(comparison_text(compared))
        if json:
            print(compared.model_dump_json())
        return
    assert run is not None
    found = _read(run, levels)
    suite = _suite(selection, found)
    if suite is not None:
        found = found.of({entry.level for entry in suite.entries})
    renewed = _self_judged(table, found, suite) if table is not None else None
    if suite is not None:
        found = found.on(suite)
    k_values = tuple(dict.fromkeys(k or (1,)))
    reasons = _degenerate(found, suite)
    analysis, answers, sources = analyzed(found, opponents, suite, reasons, p_values, k_values)
    if suite is not None and (unseen := not_admitted(suite, {one.verdict.dtype for one in found.judged})):
        note = f"{suite.name}, {unseen}: only the judge's own flags say which problems are degenerate there"
        analysis = analysis.model_copy(update={"notes": (*analysis.notes, note)})
    console.print(analysis_text(analysis))
    if os.access(run, os.W_OK):
        write_whole(run / STORED, analysis.model_dump_json(indent=1))
        print(f"kernelyard: wrote {run / STORED}", file=sys.stderr)
    else:
        print(f"kernelyard: {run} cannot be written to: {STORED} is not stored, --json prints it", file=sys.stderr)
    if html is not None:
        write_whole(html, render(analysis, answers, found.judged, sources, reasons))
        print(html)
    if png is not None:
        for path in save_pictures(analysis, answers, png):
            print(path)
    if table is not None and renewed is not None:
        markers.replace(table, *renewed)
        print(table)
    if json:
        print(analysis.model_dump_json())


def _read(folder: Path, levels: Sequence[int]) -> Run:
    """The run, or its part of the levels that were asked for."""
    found = read_run(folder, levels)
    return found.of(levels) if levels else found


def _side(run: Run, opponents: Opponents, selection: Selection) -> Side:
    suite = _suite(selection, run)
    run = run.on(suite) if suite is not None else run
    opponents.fits(run.hardware)
    return side_of(run, answers_of(run, opponents, suite))


def _self_judged(document: Path, run: Run, suite: Suite | None) -> tuple[str, str]:
    """The name of the markers and what belongs between them; raises UsageError before anything is written."""
    if suite is None:
        raise UsageError("--table needs the suite whose references were judged: --source, or --suite")
    body = self_judged_table(suite, self_judged(suite, run.judged))
    name = f"selfjudged:{_device_type(run)}"
    markers.demand(document, name)
    return name, body


def _degenerate(run: Run, suite: Suite | None) -> dict[tuple[int, int], str]:
    """By the admission check of what was judged, and of what was not where the suite is known, and by what the judge
    noticed."""
    dtype = run.facts.get("dtype")
    known = {(entry.level, entry.number): (entry.source.sha256, dtype) for entry in suite.entries} if suite else {}
    known |= {(one.key.level, one.key.problem): (one.verdict.problem_sha256, one.verdict.dtype) for one in run.judged}
    marked = {place: degenerate(*text) for place, text in known.items()}
    return flagged(run) | {place: why for place, why in marked.items() if why}


def _suite(selection: Selection, run: Run) -> Suite | None:
    """The suite, where the user named one; a level alone tells that of eval_results.json."""
    if replace(selection, level=None) == Selection():
        return None
    dtype = run.facts.get("dtype", "fp32")
    return selection.load(parse_dtype(dtype), _device_type(run))


def _device_type(run: Run) -> str:
    return run.judged[0].verdict.environment.device.partition(":")[0] if run.judged else "cpu"
