"""Shares and means with what they could as well have been: exact binomial intervals, and tests by Student's t."""

import math
from collections.abc import Callable, Sequence

from kernelyard.core.verdict import Record
from kernelyard.judge.statistics import Ratio, paired_ratio

LEVEL = 0.05
"""Intervals are 95 % intervals, and a difference is real below this chance of none."""
WIDEST = 100.0
"""An interval that reaches further than so many times either way says nothing and is left out: that of two problems at
0.01x and 9x goes from 5e-20 to 2e18."""


class Share(Record):
    """Part of a whole, with its 95 % interval."""

    count: float
    """Problems; with several samples a problem counts with the share of its samples."""
    of: int
    value: float
    low: float
    high: float


class Mean(Record):
    """A geometric mean of ratios with its 95 % interval; null where one ratio alone says nothing of a spread, or few
    say no more than nothing."""

    of: int
    value: float
    low: float | None
    high: float | None


def share(count: float, of: int) -> Share | None:
    """Clopper and Pearson's exact interval of `count` out of `of`; None of nothing.

    A count of fractions is a sum of shares within [0, 1], which spread less than a coin of the same mean: of 7000
    distributions on two points, over 2 to 100 problems, none is covered less often than the coin, which is 95.3 %.
    """
    if of <= 0:
        return None
    low = _root(lambda p: beta(count, of - count + 1, p) - LEVEL / 2) if count > 0 else 0.0
    high = _root(lambda p: beta(count + 1, of - count, p) - (1 - LEVEL / 2)) if count < of else 1.0
    return Share(count=count, of=of, value=count / of, low=low, high=high)


def mean(ratios: Sequence[float], most: float = math.inf) -> Mean | None:
    """The geometric mean, in log space, with Student's t on the logarithms; None of nothing. No ratio can be above
    `most`."""
    if not ratios:
        return None
    if len(ratios) == 1:
        return Mean(of=1, value=ratios[0], low=None, high=None)
    found = paired_ratio(ratios, [1.0] * len(ratios))
    low, high = bounds(found, most)
    return Mean(of=len(ratios), value=found.mean, low=low, high=high)


def bounds(found: Ratio, most: float = math.inf) -> tuple[float, float] | tuple[None, None]:
    """The interval, which ends at `most`; none of one that says nothing."""
    if found.high > WIDEST * found.mean:
        return None, None
    return found.low, min(found.high, most)


def geometric(ratios: Sequence[float]) -> float:
    """Their geometric mean, in log space. Needs one."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def any_right(samples: int, right: int, k: int) -> float:
    """The chance that one of `k` samples is right, drawn from those there are: unbiased (Chen et al. 2021)."""
    if samples - right < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / n for n in range(samples - right + 1, samples + 1))


def student_p(logs: Sequence[float]) -> float:
    """The chance of a mean as far from 0 as that of `logs`, were it 0: Student's t, two-sided. Needs two."""
    count = len(logs)
    centre = sum(logs) / count
    variance = sum((value - centre) ** 2 for value in logs) / (count - 1)
    if variance == 0:
        return 1.0 if centre == 0 else 0.0
    squared = centre**2 * count / variance
    return beta((count - 1) / 2, 0.5, (count - 1) / (count - 1 + squared))


def sign_p(ups: int, downs: int) -> float:
    """The chance of a split as uneven, were both ways alike: exact and two-sided.

    On problems that one of two runs solved and the other did not, this is McNemar's exact test.
    """
    count = ups + downs
    tail = sum(math.comb(count, k) for k in range(min(ups, downs) + 1)) / 2**count
    return min(1.0, 2 * tail)


def normal_p(deviations: float) -> float:
    """The chance of a normal value as far from 0, two-sided."""
    return math.erfc(abs(deviations) / math.sqrt(2))


def holm(chances: Sequence[float]) -> list[float]:
    """The chances for that many questions asked at once: the family errs in 5 of 100 at most (Holm 1979)."""
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    adjusted, worst = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        worst = max(worst, min(1.0, (len(chances) - rank) * chances[place]))
        adjusted[place] = worst
    return adjusted


def product(first: Ratio, second: Ratio) -> Ratio:
    """Of two ratios measured apart: logarithms add, half widths add in squares."""
    centre = math.log(first.mean) + math.log(second.mean)
    half = math.hypot(*(math.log(ratio.high / ratio.low) / 2 for ratio in (first, second)))
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by Lentz's continued fraction; right to 1e-12 or so."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    fraction, c, d = 1.0, 1.0, 0.0
    for i_step in range(1000):
        m = i_step // 2
        if i_step == 0:
            term = 1.0
        elif i_step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / _not_zero(1 + term * d)
        c = _not_zero(1 + term / c)
        fraction *= c * d
        if abs(1 - c * d) < 1e-14:
            break
    return front * (fraction - 1) / a


def _not_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


def _root(function: Callable[[float], float]) -> float:
    """Where a rising function of [0, 1] passes 0."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return (low + high) / 2
