"""Where the curves and bars of a run's speedups stand: numbers for the page's drawings and for the pictures."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernelyard.campaign.analysis import Answers
from kernelyard.campaign.intervals import Share, share
from kernelyard.core.verdict import Decision

LOOKS = {
    Decision.FASTER.value: "#009e73",
    Decision.TIE.value: "#9a9a9a",
    Decision.SLOWER.value: "#d55e00",
    Decision.INCONCLUSIVE.value: "#e69f00",
    "undecided": "#56b4e9",
}
"""Okabe and Ito's colours; `undecided` is what KernelBench's files leave."""
BIN = 0.25
"""Of a histogram, in octaves: 1.19x."""
ENDS = (-4.0, 6.0)
"""Octaves; what lies beyond 1/16 and 64 is in the outermost bins."""
FIRST = -2.0
"""Octave where a curve begins."""


@dataclass(frozen=True)
class Bin:
    """Right samples whose speedup lies between two edges, in octaves, by decision."""

    low: float
    counts: dict[str, int]

    @property
    def span(self) -> str:
        """`1.19x to 1.41x`; an outermost bin holds what lies beyond it, too."""
        if self.low + BIN >= ENDS[1]:
            return f"{2.0**self.low:.3g}x and more"
        high = f"{2.0 ** (self.low + BIN):.3g}x"
        return f"{high} and less" if self.low <= ENDS[0] else f"{2.0**self.low:.3g}x to {high}"


def histogram(answers: Sequence[Answers], opponent: str) -> list[Bin]:
    """Every right sample that was timed, of the problems that fast_p counts against `opponent`.

    The first and the last bin hold one at least, those between may be empty.
    """
    found: Counter[tuple[int, str]] = Counter()
    for each in answers:
        for outcome in each.counted if opponent in each.opponents else ():
            if gain := outcome.gains.get(opponent):
                octave = min(max(math.log2(gain.ratio), ENDS[0]), ENDS[1] - BIN)
                found[math.floor(octave / BIN + 1e-9), gain.decision.value if gain.decision else "undecided"] += 1
    places = [place for place, _ in found]
    if not places:
        return []
    span = range(min(*places, -1), max(*places, 0) + 1)
    return [Bin(place * BIN, {name: found[place, name] for name in LOOKS if found[place, name]}) for place in span]


def curve(answers: Sequence[Answers], opponent: str) -> list[tuple[float, Share]]:
    """The corners of fast_p with its interval, by p in octaves from 1/4 until nothing is left: it falls at a ratio that
    somebody has, and nowhere between."""
    known = [each for each in answers if each.counts and opponent in each.opponents]
    ratios = {gain.ratio for each in known for one in each.counted if (gain := one.gains.get(opponent))}

    def above(p: float) -> Share | None:
        return share(sum(each.fast(opponent, p) for each in known), len(known))

    now = above(2.0**FIRST)
    if now is None:
        return []
    points = [(FIRST, now)]
    for ratio in sorted(ratio for ratio in ratios if FIRST < math.log2(ratio) < ENDS[1]):
        after = above(ratio) or now
        points += [(math.log2(ratio), now), (math.log2(ratio), after)]
        now = after
    return [*points, (max(1.0, points[-1][0]) if now.count == 0 else ENDS[1], now)]


def ratio_label(octave: float) -> str:
    """`0.25x`, `1x`, `8x`."""
    return f"{2.0**octave:g}x"
