"""The drawings of a run's page: geometry of histograms and curves, without their markup."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernelyard.campaign.analysis import Answers
from kernelyard.campaign.intervals import Share
from kernelyard.campaign.outcomes import BEST, EAGER, OPPONENTS
from kernelyard.report.distribution import BIN, LOOKS, Bin, curve, histogram, ratio_label

WIDTH, HEIGHT = 400, 230
"""In SVG units."""
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 26, 34


@dataclass(frozen=True)
class Stroke:
    """How a curve is drawn: solid, or where there is a gap dashed. Lengths are in the unit of the width."""

    color: str
    width: float
    dash: float = 0.0
    gap: float = 0.0


STROKES = {EAGER: Stroke("#9c9c9c", 3.6), BEST: Stroke("#0072b2", 1.6, dash=7.0, gap=4.0)}
"""Of each opponent's curve. Where both coincide the wide one shows in the gaps of the narrow one and on its sides."""


@dataclass(frozen=True)
class Label:
    place: float
    text: str


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    color: str
    text: str


@dataclass(frozen=True)
class Line:
    name: str
    stroke: Stroke
    points: str
    band: str
    """The interval, as the points of a polygon."""


@dataclass(frozen=True)
class Drawing:
    """One chart of WIDTH by HEIGHT units."""

    title: str
    x: tuple[Label, ...]
    y: tuple[Label, ...]
    one: float | None
    """Where 1x stands."""
    bars: tuple[Bar, ...] = ()
    lines: tuple[Line, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    """Colours and what they stand for."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


class _Axis:
    """From a value to a position."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.start = low, start
        self.scale = (end - start) / (high - low)

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) * self.scale, 1)


def drawings(answers: Sequence[Answers]) -> list[Drawing]:
    """fast_p against every opponent, then a histogram for each; none where nothing was timed."""
    shown = [opponent for opponent in OPPONENTS if histogram(answers, opponent)]
    if not shown:
        return []
    return [_curves(answers, shown), *(_histogram(opponent, histogram(answers, opponent)) for opponent in shown)]


def _curves(answers: Sequence[Answers], opponents: Sequence[str]) -> Drawing:
    curves = {opponent: curve(answers, opponent) for opponent in opponents}
    octaves = [octave for points in curves.values() for octave, _ in points]
    x = _Axis(min(octaves), max(octaves), LEFT, WIDTH - RIGHT)
    y = _Axis(0, 1, HEIGHT - BOTTOM, TOP)
    return Drawing(
        title="fast_p, with its 95 % interval",
        x=tuple(Label(x(octave), ratio_label(octave)) for octave in range(round(min(octaves)), int(max(octaves)) + 1)),
        y=tuple(Label(y(part / 4), f"{25 * part} %") for part in range(5)),
        one=x(0),
        lines=tuple(_line(opponent, points, x, y) for opponent, points in curves.items()),
        legend=tuple((STROKES[opponent].color, f"against {opponent}") for opponent in opponents),
    )


def _line(name: str, points: Sequence[tuple[float, Share]], x: _Axis, y: _Axis) -> Line:
    over = [(octave, share.high) for octave, share in points]
    under = [(octave, share.low) for octave, share in reversed(points)]
    return Line(
        name,
        STROKES[name],
        _points([(octave, share.value) for octave, share in points], x, y),
        _points(over + under, x, y),
    )


def _points(values: Sequence[tuple[float, float]], x: _Axis, y: _Axis) -> str:
    return " ".join(f"{x(across)},{y(up)}" for across, up in values)


def _histogram(opponent: str, bins: Sequence[Bin]) -> Drawing:
    most = max(sum(each.counts.values()) for each in bins)
    low, high = bins[0].low, bins[-1].low + BIN
    x, y = _Axis(low, high, LEFT, WIDTH - RIGHT), _Axis(0, most, HEIGHT - BOTTOM, TOP)
    bars = []
    for each in bins:
        below = 0
        for name, count in each.counts.items():
            bars.append(
                Bar(
                    x(each.low) + 1,
                    y(below + count),
                    round(x(each.low + BIN) - x(each.low) - 2, 1),
                    round(y(below) - y(below + count), 1),
                    LOOKS[name],
                    f"{count} {name}, {each.span}",
                )
            )
            below += count
    step = -(-most // 4)
    seen = dict.fromkeys(name for each in bins for name in each.counts)
    return Drawing(
        title=f"speedup over {opponent}, right samples",
        x=tuple(Label(x(octave), ratio_label(octave)) for octave in range(-4, 7) if low <= octave <= high),
        y=tuple(Label(y(count), str(count)) for count in range(0, most + 1, step)),
        one=x(0),
        bars=tuple(bars),
        legend=tuple((LOOKS[name], name) for name in LOOKS if name in seen),
    )
