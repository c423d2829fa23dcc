"""Where the bars of a ladder stand: the geometry of the drawing, without its markup."""

import math
from dataclasses import dataclass

from kernelyard.ladder.record import Ladder, LadderRow
from kernelyard.report.palette import styles
from kernelyard.report.table import NOT_MEASURED, format_ms, format_percent, without_zeros

LABELS, PLOT, VALUES = 110, 430, 180
"""Widths in SVG units of the names on the left, the bars, and the numbers on the right."""
ROW, TOP, BOTTOM = 30, 30, 26
LOG_SPREAD = 20
"""A linear axis shows a bar this many times shorter than the longest as a sliver: from there on it is logarithmic."""


@dataclass(frozen=True)
class Bar:
    """One backend: a bar from the axis to the median, a whisker from p20 to p80; no bar where nothing was timed."""

    name: str
    color: str
    y: float
    end: float | None
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True)
class Tick:
    x: float
    text: str


@dataclass(frozen=True)
class Bars:
    """A drawing of `width` by `height` units; x positions are absolute."""

    width: float
    height: float
    axis: float
    right: float
    bottom: float
    floor: Tick
    ticks: tuple[Tick, ...]
    bars: tuple[Bar, ...]
    logarithmic: bool


class Scale:
    """From milliseconds to a position: linear from 0, or logarithmic from a little under the least."""

    def __init__(self, least: float, most: float) -> None:
        self.logarithmic = most > LOG_SPREAD * least
        self.most = most * (1.3 if self.logarithmic else 1.05)
        self.least = least / 1.5

    def __call__(self, milliseconds: float) -> float:
        if self.logarithmic:
            share = math.log(milliseconds / self.least) / math.log(self.most / self.least)
        else:
            share = milliseconds / self.most
        return round(LABELS + PLOT * share, 1)

    @property
    def steps(self) -> list[float]:
        """Round values for ticks, in milliseconds."""
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
            known = [10.0**power for power in powers if self.least <= 10.0**power <= self.most]
            return known[:: -(-len(known) // 6)] if known else []
        rough = self.most / 4
        unit = 10.0 ** math.floor(math.log10(rough))
        step = unit * max(factor for factor in (1, 2, 5) if factor * unit <= rough)
        return [step * place for place in range(int(self.most / step) + 1)]


def bars(ladder: Ladder) -> Bars:
    """The drawing of a ladder."""
    times = [time for row in ladder.rows if row.time for time in (row.time.p20_ms, row.time.p80_ms)]
    scale = Scale(min([ladder.floor.floor_ms, *times]), max([ladder.floor.floor_ms, *times]))
    colors = styles(row.backend for row in ladder.rows)
    bottom = TOP + ROW * len(ladder.rows)
    return Bars(
        width=LABELS + PLOT + VALUES,
        height=bottom + BOTTOM,
        axis=LABELS,
        right=LABELS + PLOT,
        bottom=bottom,
        floor=Tick(scale(ladder.floor.floor_ms), f"floor {format_ms(ladder.floor.floor_ms)}"),
        ticks=tuple(Tick(scale(step), without_zeros(format_ms(step)) if step else "0") for step in scale.steps),
        bars=tuple(
            _bar(row, colors[row.backend].color, TOP + ROW * (place + 0.5), scale)
            for place, row in enumerate(ladder.rows)
        ),
        logarithmic=scale.logarithmic,
    )


def _bar(row: LadderRow, color: str, y: float, scale: Scale) -> Bar:
    if row.time is None:
        return Bar(row.backend, color, y, None, None, None, row.status)
    text = format_ms(row.time.p50_ms)
    if format_percent(row.percent_of_floor) != NOT_MEASURED:
        text += f" · {format_percent(row.percent_of_floor)}"
    return Bar(row.backend, color, y, scale(row.time.p50_ms), scale(row.time.p20_ms), scale(row.time.p80_ms), text)
