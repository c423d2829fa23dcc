"""An analysis and a comparison as a terminal shows them."""

from collections.abc import Iterator

from rich.console import Group as Together
from rich.console import RenderableType
from rich.text import Text

from kernelyard.campaign.analysis import Against, Analysis, Group
from kernelyard.campaign.comparison import Comparison, Difference
from kernelyard.campaign.intervals import Mean, Share
from kernelyard.campaign.kernelbench_score import KernelBenchScore
from kernelyard.core.plural import counted
from kernelyard.report.table import NOT_MEASURED, format_interval, format_percent
from kernelyard.report.unbroken import Unbroken
from kernelyard.report.untrusted import visible

SAME = "1.0"
"""The p of KernelBench's above which a solution is faster at all."""


def format_share(share: Share | None) -> str:
    """`41.0 % (38.2-43.9)`: a share and its interval."""
    if share is None:
        return NOT_MEASURED
    return f"{100 * share.value:.1f} % ({100 * share.low:.1f}-{100 * share.high:.1f})"


def format_mean(mean: Mean | None) -> str:
    """`1.24x (1.21-1.27)`."""
    return NOT_MEASURED if mean is None else format_interval(mean.value, mean.low, mean.high)


def format_floor(mean: Mean | None) -> str:
    """A mean of floor over time as percent: `81.0 % (78.2-83.9)`."""
    if mean is None:
        return NOT_MEASURED
    spread = f" ({100 * mean.low:.1f}-{100 * mean.high:.1f})" if mean.low is not None and mean.high is not None else ""
    return format_percent(100 * mean.value) + spread


def format_chance(chance: float) -> str:
    """`0.031`, `<0.0001`."""
    return "<0.0001" if chance < 1e-4 else f"{chance:.2g}"


def analysis_text(analysis: Analysis) -> RenderableType:
    """Everything, the numbers that decide first."""
    return Together(
        Text(visible(f"{analysis.run}: {', '.join(analysis.settings)}")),
        _shares(analysis.groups),
        _endings(analysis.groups[0]),
        *(Text(visible(line, len(line))) for line in _lines(analysis)),
    )


def _shares(groups: tuple[Group, ...]) -> Unbroken:
    p_values = list(dict.fromkeys(p for group in groups for against in group.against for p in against.fast))
    k_values = list(dict.fromkeys(k for group in groups for k in group.pass_at))
    any_told = any(against.told for group in groups for against in group.against)
    speeds = ("speedup of the right", *(["as told"] if any_told else []))
    rows = []
    for group in groups:
        opponents: tuple[Against | None, ...] = group.against or (None,)
        for place, against in enumerate(opponents):
            first = place == 0
            row = (
                f"{group.name}: {group.problems}",
                _opponent(against, group),
                *(format_share(against.fast.get(p) if against else None) for p in p_values),
                format_share(against.faster if against else None),
                format_mean(against.speedup if against else None),
                *([format_mean(against.told or against.speedup if against else None)] if any_told else []),
                format_floor(group.floor) if first else "",
                *(format_share(group.pass_at.get(k)) if first else "" for k in k_values),
            )
            rows.append(row)
    shares = (*(f"fast_{p}" for p in p_values), "faster, decided")
    numbers = (*shares, *speeds, "% of the floor", *(f"pass@{k}" for k in k_values))
    return Unbroken(("problems", "against"), numbers, rows)


def _opponent(against: Against | None, group: Group) -> str:
    """`eager`, and of how many problems the numbers beside it are, where the opponent has no time of some."""
    if against is None:
        return NOT_MEASURED
    return against.opponent if against.problems == group.problems else f"{against.opponent}: {against.problems}"


def _endings(group: Group) -> Unbroken:
    rows = [
        (
            ending.status,
            ending.phase or "",
            str(ending.samples),
            format_percent(100 * ending.samples / group.samples),
            str(ending.problems),
        )
        for ending in group.endings
    ]
    return Unbroken(("ending", "phase"), ("samples", "share", "problems"), rows)


def _lines(analysis: Analysis) -> Iterator[str]:
    whole = analysis.groups[0]
    if whole.unanswered:
        yield f"problems without a sample, which count as wrong: {whole.unanswered}"
    if whole.left_out:
        yield f"without a verdict, in no share: {', '.join(whole.left_out)}"
    untimed = sum(against.untimed for against in whole.against[:1])
    if untimed:
        yield f"{counted(untimed, 'right sample has', 'right samples have')} no time: in fast_0 and in no other"
    for problem, why in analysis.degenerate.items():
        yield f"degenerate: {problem}: {why}"
    yield from (score_line(score) for score in analysis.kernelbench)
    yield from (f"note: {note}" for note in analysis.notes)
    yield analysis.method


def score_line(score: KernelBenchScore) -> str:
    """KernelBench's numbers, as its script prints them."""
    mean = f"{score.geo_mean_speedup:.4f}" if score.geo_mean_speedup is not None else "nan"
    shares = ", ".join(f"fast_{p} {value:.4g}" for p, value in score.fast_p.items())
    doubt = f"; {counted(score.untimed, 'right sample')} with runtime -1" if score.untimed else ""
    fast = round(score.fast_p[SAME] * score.aligned)
    if score.uncredited:
        said = counted(score.uncredited, "is a gain", "are gains")
        doubt += f"; of the {fast} in fast_{SAME}, {said} that our verdicts do not credit"
    return (
        f"by KernelBench's definition, level {score.level}, {score.baseline}: {shares}; geometric mean {mean};"
        f" {score.correct_count} correct of {score.total_count}, {score.aligned} aligned{doubt}"
    )


def comparison_text(comparison: Comparison, single: bool = True) -> RenderableType:
    """Summary, then the problems one by one: the real differences first."""
    parts: list[RenderableType] = [
        Text(visible(f"A {comparison.a}\nB {comparison.b}\n{_in_both(comparison)}")),
        _differences(comparison.summary, "question"),
    ]
    if comparison.single and single:
        real = [each for each in comparison.single if each.real]
        said = counted(len(real), "differs", "differ")
        parts.append(Text(f"of {len(comparison.single)} compared one by one, {said} in time for good"))
        if real:
            parts.append(_differences(tuple(real), "problem"))
    parts += [Text(visible(f"left out: {problem}: {why}")) for problem, why in comparison.left_out.items()]
    parts += [Text(f"note: {visible(note)}") for note in comparison.notes]
    return Together(*parts, Text(comparison.method))


def _in_both(comparison: Comparison) -> str:
    """Each number is a part of the one before it."""
    return (
        f"{counted(comparison.problems, 'problem')} in both: {comparison.answered} answered by both,"
        f" {comparison.solved} solved by both, {len(comparison.single)} of these compared one by one"
    )


def _differences(differences: tuple[Difference, ...], first: str) -> Unbroken:
    rows = []
    for each in differences:
        of_speed = each.ratio is not None
        values = [
            format_interval(value, None, None) if of_speed else f"{100 * (value or 0):.1f} %"
            for value in (each.a, each.b)
        ]
        row = (
            visible(each.what),
            *values,
            format_interval(each.ratio, each.low, each.high),
            NOT_MEASURED if each.only_a is None else f"{each.only_a} / {each.only_b}",
            str(each.problems),
            format_chance(each.chance),
            "real" if each.real else "not shown",
        )
        rows.append(row)
    numbers = ("A", "B", "A over B (95 %)", "better in A / B", "problems", "chance", "difference")
    return Unbroken((first,), numbers, rows)
