"""One HTML page of ladders and verdicts that needs nothing but itself.

A solution's file name, its message and its flags' evidence were written by a stranger. The template escapes every
value, the page forbids itself scripts and requests, and characters that hide or reorder text are spelled out.
"""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined

from kernelyard.core.verdict import Status, Verdict
from kernelyard.judge.prove import REFUSED
from kernelyard.ladder.record import Ladder
from kernelyard.report import table
from kernelyard.report.bars import bars
from kernelyard.report.untrusted import visible
from kernelyard.report.verdict import credit_line, timed_line, walls

NEUTRAL = (Status.INFRA_ERROR.value, Status.INVALID_PROBLEM.value, REFUSED)
"""Endings that say nothing against the solution."""


def render(ladders: Sequence[Ladder], verdicts: Sequence[Verdict], title: str) -> str:
    """The page as text. Sections without content are left out."""
    environments = [ladder.environment for ladder in ladders] + [verdict.environment for verdict in verdicts]
    return (
        templates()
        .get_template("page.html")
        .render(
            title=title,
            ladders=[(ladder, bars(ladder)) for ladder in ladders],
            verdicts=verdicts,
            passed=sum(verdict.status is Status.PASSED for verdict in verdicts),
            environments=list(dict.fromkeys(environment.line for environment in environments)),
        )
    )


def templates() -> Templates:
    """What pages are made with: everything escaped and hidden characters spelled out, numbers written as in tables."""
    made = Templates(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {name: getattr(table, name) for name in dir(table) if name.startswith("format_")}
    made.globals |= {"tone": _tone, "measured": _measured, "walls": walls, "credit_line": credit_line}
    return made


def _visible(value: object) -> object:
    return visible(value) if type(value) is str else value


def _tone(status: str) -> str:
    if status == Status.PASSED.value:
        return "good"
    return "neutral" if status in NEUTRAL else "bad"


def _measured(verdict: Verdict) -> str:
    """How the numbers of a verdict came about, or where it ended."""
    parts = [f"{verdict.trials} secret inputs compared"] if verdict.trials else []
    if verdict.time is not None:
        parts += [
            f"{timed_line(verdict)}, cache {verdict.time.cache}",
            f"{verdict.rounds} paired rounds, noise floor {table.format_percent(100 * (verdict.noise or 0.0))}",
            f"{verdict.timed_outputs_checked} outputs of timed calls checked",
        ]
    parts += [f"weights by {verdict.weights}"] if verdict.weights not in (None, "none") else []
    parts += ["training mode"] if verdict.train_mode else []
    parts += [f"ended in phase {verdict.phase.value}"] if verdict.phase else []
    return "; ".join(parts) or table.NOT_MEASURED
