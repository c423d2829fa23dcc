"""The admission of problems: a few lines of one, and the table of many."""

from collections import Counter
from collections.abc import Mapping, Sequence

from kernelyard.judge.admission import Admission
from kernelyard.report.untrusted import visible

STATUSES = ("valid", "invalid_problem", "skipped")


def admission_lines(record: Admission) -> list[str]:
    """One line that decides, then what became of each mutant. What a file of records said is made harmless."""
    lines = [f"{record.problem}: {record.status}{f': {record.reason}' if record.reason else ''}"]
    for mutant in record.mutants:
        detail = f" by {mutant.detail}" if mutant.outcome == "killed" else f": {mutant.detail}" if mutant.detail else ""
        lines.append(f"  {mutant.name:16} {mutant.outcome.replace('_', ' ')}{detail}")
    if record.kill_rate is not None:
        lines.append(f"  kill rate        {_rate(record)} of the mutants that apply")
    lines += [f"  not asked        {name}: {reason}" for name, reason in record.skipped.items()]
    return [_line(line) for line in lines]


def admission_table(groups: Mapping[str, Sequence[Admission]]) -> str:
    """Markdown: where they were looked at, a line for each group, which mutants survive where, and each problem's."""
    records = [record for group in groups.values() for record in group]
    parts = [_places(records), _summary(groups), _survivors(records)]
    for name, group in groups.items():
        parts += [f"### {name}", _problems(group)]
    return "\n\n".join(part for part in parts if part)


def _places(records: Sequence[Admission]) -> str:
    """Each environment with how many problems were looked at there; a line where there is one."""
    counts = Counter(_line(record.environment.line) for record in records if record.status != "not_loaded")
    if len(counts) <= 1:
        return "".join(f"On {place}; {_line(records[0].dtype)}." for place in counts)
    lines = [f"- {count} problem{'s' * (count > 1)} on {place}" for place, count in counts.most_common()]
    return "\n".join([f"In {_line(records[0].dtype)}:", "", *lines])


def _summary(groups: Mapping[str, Sequence[Admission]]) -> str:
    lines = ["| suite | problems | valid | invalid | skipped | mutants killed |", "|---|---|---|---|---|---|"]
    for name, group in groups.items():
        counts = Counter[str](record.status for record in group)
        killed = sum(len(record.named("killed")) for record in group)
        applied = killed + sum(len(record.named("survived")) for record in group)
        cells = " | ".join(str(counts[status]) for status in STATUSES)
        share = f"{killed} of {applied}, {100 * killed / applied:.1f} %" if applied else "-"
        lines.append(f"| {name} | {len(group) - counts['not_loaded']} | {cells} | {share} |")
    return "\n".join(lines)


def _survivors(records: Sequence[Admission]) -> str:
    """By mutant: how often it was killed, how often only by a stressed question, survived, did not apply."""
    lines = [
        "| mutant | killed | of these, only under stress | survived | not applicable |",
        "|---|---|---|---|---|",
    ]
    table: dict[str, Counter[str]] = {}
    for record in records:
        for mutant in record.mutants:
            counts = table.setdefault(_cell(_kind(mutant.name)), Counter())
            counts[mutant.outcome] += 1
            counts["stress"] += mutant.outcome == "killed" and mutant.detail not in ("first", "second")
    for name, counts in table.items():
        cells = (counts["killed"], counts["stress"], counts["survived"], counts["not_applicable"])
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines) if table else ""


def _kind(name: str) -> str:
    return "input_zeroed" if name.startswith("input_") else name


def _problems(group: Sequence[Admission]) -> str:
    lines = ["| problem | status | kill rate | not killed, or why |", "|---|---|---|---|"]
    for record in group:
        name, why = _cell(record.problem.removesuffix(".py")), _cell(record.reason)
        lines.append(f"| {name} | {record.status} | {_rate(record)} | {why} |")
    return "\n".join(lines)


def _line(text: str) -> str:
    return visible(text).replace("\n", " ")


def _cell(text: str) -> str:
    return _line(text).replace("|", "/")


def _rate(record: Admission) -> str:
    if record.kill_rate is None:
        return "-"
    killed = len(record.named("killed"))
    return f"{killed} of {killed + len(record.named('survived'))}"
