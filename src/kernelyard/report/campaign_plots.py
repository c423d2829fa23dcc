"""Pictures of a run for a paper: fast_p over p with its interval, and the speedups of what is right."""

import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from kernelyard.campaign.analysis import Analysis, Answers
from kernelyard.campaign.outcomes import OPPONENTS
from kernelyard.core.errors import UsageError
from kernelyard.report.campaign_drawings import STROKES
from kernelyard.report.distribution import BIN, LOOKS, curve, histogram, ratio_label
from kernelyard.report.picture import wrapped, write_png

FOOT_SIZE = 5.5


def save_pictures(analysis: Analysis, answers: Sequence[Answers], folder: Path) -> list[Path]:
    """`RUN_fast_p.png` and `RUN_speedups.png`; raises UsageError where nothing was timed."""
    shown = [opponent for opponent in OPPONENTS if histogram(answers, opponent)]
    if not shown:
        raise UsageError(f"{analysis.run} has no right sample with a time; expected one for --png")
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9._]+", "-", Path(analysis.run).name).strip("-") or "run"
    pictures = {
        folder / f"{stem}_fast_p.png": draw_fast_p(analysis, answers, shown),
        folder / f"{stem}_speedups.png": draw_speedups(analysis, answers, shown),
    }
    for path, figure in pictures.items():
        write_png(path, figure, dpi=200)
    return list(pictures)


def draw_fast_p(analysis: Analysis, answers: Sequence[Answers], opponents: Sequence[str]) -> Figure:
    """A curve for each opponent; the band is the interval."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for opponent in opponents:
        points = curve(answers, opponent)
        octaves = [octave for octave, _ in points]
        stroke = STROKES[opponent]
        low, high = [share.low for _, share in points], [share.high for _, share in points]
        axes.fill_between(octaves, low, high, color=stroke.color, alpha=0.15, linewidth=0)
        label = f"against {opponent}, {points[0][1].of} problems"
        # Matplotlib counts dashes in line widths.
        style = (0, (stroke.dash / stroke.width, stroke.gap / stroke.width)) if stroke.gap else "solid"
        values = [share.value for _, share in points]
        axes.plot(octaves, values, color=stroke.color, linewidth=stroke.width, linestyle=style, label=label)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.set_ylabel("fast_p", fontsize=9)
    axes.set_xlabel("p: times as fast as the opponent", fontsize=9)
    # On white: the line of 1x and the grid went through its words.
    axes.legend(facecolor="white", edgecolor="none", framealpha=1, fontsize=8, handlelength=3)
    _finish(figure, [axes], analysis)
    return figure


def draw_speedups(analysis: Analysis, answers: Sequence[Answers], opponents: Sequence[str]) -> Figure:
    """A histogram for each opponent, coloured by decision, on one axis."""
    figure = Figure(figsize=(6.4, 0.7 + 2.2 * len(opponents)), layout="constrained")
    panels = figure.subplots(len(opponents), 1, sharex=True, squeeze=False)[:, 0].tolist()
    seen: set[str] = set()
    for axes, opponent in zip(panels, opponents, strict=True):
        for each in histogram(answers, opponent):
            below = 0
            for name, count in each.counts.items():
                label = name if name not in seen else None
                axes.bar(
                    each.low, count, 0.92 * BIN, bottom=below, align="edge", color=LOOKS[name], label=label, linewidth=0
                )
                seen.add(name)
                below += count
        axes.set_ylabel("right samples", fontsize=9)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_title(f"speedup over {opponent}", fontsize=9)
    figure.legend(loc="outside upper center", ncols=len(seen), frameon=False, fontsize=8)
    _finish(figure, panels, analysis)
    return figure


def _finish(figure: Figure, panels: Sequence[Axes], analysis: Analysis) -> None:
    for axes in panels:
        axes.axvline(0, color="#111111", linestyle="--", linewidth=1)
        low, high = axes.get_xlim()
        axes.xaxis.set_major_locator(FixedLocator([octave for octave in range(-4, 7) if low <= octave <= high]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: ratio_label(value)))
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    foot = f"{analysis.method}. {', '.join(analysis.settings)}."
    lines = wrapped(foot, 0.98 * figure.get_figwidth(), FOOT_SIZE)
    # Of its own height: eight lines would else take a quarter of what is drawn.
    figure.set_figheight(figure.get_figheight() + (lines.count("\n") + 1) * 1.2 * FOOT_SIZE / 72)
    figure.supxlabel(lines, fontsize=FOOT_SIZE, color="#555555", x=0.01, ha="left", parse_math=False)
