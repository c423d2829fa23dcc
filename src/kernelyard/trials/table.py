"""What came of a run of trials, for a terminal and for a document."""

from collections.abc import Sequence

from rich.table import Table

from kernelyard.core.environment import Environment
from kernelyard.report.table import format_interval, format_ratio
from kernelyard.report.untrusted import visible
from kernelyard.trials.sample import Kind
from kernelyard.trials.trial import Outcome

COLUMNS = ("class", "samples", "as it must be", "still succeed", "known to be open")


def summary(outcomes: Sequence[Outcome]) -> Table:
    """How many there are of each class, and how many succeed."""
    table = Table(title="the judge on trial", title_justify="left", box=None, header_style="bold")
    for column in COLUMNS:
        table.add_column(column)
    for row in _rows(outcomes):
        table.add_row(*row)
    return table


def successes(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each that fooled the judge, and for each that is said to and does not."""
    lines = []
    for outcome in outcomes:
        if outcome.success:
            verb = "succeeds" if outcome.hostile else "was wronged"
            lines.append(f"{outcome.name} {verb}: {visible(outcome.success)}")
            lines += [f"  known: {outcome.open}"] if outcome.open else []
        elif outcome.open:
            lines.append(f"{outcome.name} no longer succeeds: remove its line 'open: {outcome.open}'")
    return lines


def section(environment: Environment) -> str:
    """The part of a document that a run on this device renews: a GPU's run says nothing of another's."""
    return f"exploits:{'cpu' if environment.device == 'cpu' else environment.device_name}"


def markdown(outcomes: Sequence[Outcome], environment: Environment, sandbox: str, *, devices: int = 1) -> str:
    """Counts, what still succeeds, and every sample with its verdict."""
    judged = sum(outcome.status is not None for outcome in outcomes)
    where = f"{environment.line}, {devices} of this device" if devices > 1 else environment.line
    parts = [f"{judged} verdicts in the {sandbox} sandbox: {where}"]
    parts.append(_table(COLUMNS, _rows(outcomes)))
    known = [outcome for outcome in outcomes if outcome.success]
    if known:
        rows = [(_code(outcome.name), visible(outcome.success), outcome.open or "") for outcome in known]
        parts.append("Still succeed:\n\n" + _table(("sample", "how", "known because"), rows))
    else:
        parts.append("None succeeds, and no honest solution is refused.")
    ordered = sorted(outcomes, key=_place)
    entries = [
        (outcome.kind, outcome.catalogue, _code(outcome.name), outcome.what, _said(outcome)) for outcome in ordered
    ]
    parts.append(_table(("class", "cheat", "sample", "what it does", "verdict"), entries))
    return "\n\n".join(parts)


def _rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    rows = []
    for kind in Kind:
        own = [outcome for outcome in outcomes if outcome.kind == kind.value]
        if own:
            succeed = [outcome for outcome in own if outcome.success]
            known = [outcome for outcome in succeed if outcome.open]
            counts = (len(own), len(own) - len(succeed), len(succeed), len(known))
            rows.append((kind.value, *map(str, counts)))
    return rows


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _said(outcome: Outcome) -> str:
    """The status; of what passed also the speedup, and what was made of it."""
    said = outcome.status or "none"
    if outcome.decision:
        said += f", {outcome.decision}"
    if outcome.speedup is not None:
        said += f", {format_interval(outcome.speedup, outcome.speedup_low, outcome.speedup_high)}"
    if outcome.credited is not None:
        said += f", {format_ratio(outcome.credited)} credited"
    return said


def _code(name: str) -> str:
    return f"`{name}`"


def _place(outcome: Outcome) -> tuple[int, str, int, str]:
    kinds = [kind.value for kind in Kind]
    letter, number = outcome.catalogue[:1], outcome.catalogue[1:]
    return (kinds.index(outcome.kind), letter, int(number) if number.isdigit() else 0, outcome.name)
