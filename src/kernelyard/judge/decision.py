"""Whether a solution is faster, and when enough was measured to say so."""

import math
from collections.abc import Sequence

from kernelyard.core.verdict import Decision
from kernelyard.judge.statistics import Ratio, median

MARGIN = 0.02
"""A difference below this is nobody's gain: two processes that run one kernel differ by up to a percent for good."""
DEAF = 0.10
"""Of noise: where a machine cannot tell more than this from nothing, what lies within is not known to be a tie."""
NARROW = 0.003
"""An interval is narrow enough when its half width is below this. A planted 3 % clears the margin of 2 % by 0.0098 on a
logarithmic scale: over three such half widths."""
SURE = 2.35
"""Standard deviations, looked at after every round: of nothing, 5 in 100 are so sure at least once (simulated). 7 of 8
rounds are enough where the eighth differs least."""
LUCK = 1.64
"""By chance in one of 20."""
CLAIM = 0.5
"""From this share of what counts on the judge's own clock is asked too. Nothing else needs the requests that it times:
of a problem of 13 GB they are a fifth of a verdict."""
LEAST_MS = 4e-4
"""A difference below this, for each of the reference's kernels, is nobody's gain either, as far as it is no more than
`DEAF` of a call. Two processes that run one program differ for good by what surrounds its kernels: twelve verdicts on a
softmax of 6.6 us against itself, on an H100, were 0.974x to 1.010x, up to 0.17 us, after as many as 59 rounds;
twenty-five on three kernels of 21 us in all 0.957x to 1.013x, up to 0.9 us."""


def band(noise: float) -> float:
    """The logarithm of the least ratio that counts: the margin, or the noise floor where that is wider."""
    return math.log1p(max(MARGIN, noise))


def decide(ratio: Ratio, noise: float, *, confirmed: bool) -> Decision:
    """What an interval of baseline time over solution time means above a noise floor (0.01 is 1 %).

    `confirmed`: the judge's own clock saw a gain too, in the solution's requests. What is claimed and lies within that
    clock's noise is not known.
    """
    low, high, edge = math.log(ratio.low), math.log(ratio.high), band(noise)
    if low > edge:
        return Decision.FASTER if confirmed else Decision.INCONCLUSIVE
    if high < -edge:
        return Decision.SLOWER
    if -edge <= low and high <= edge and noise <= DEAF:
        return Decision.TIE
    return Decision.INCONCLUSIVE


def settled(ratio: Ratio, noise: float, share: float) -> bool:
    """Whether more rounds could not change the decision, or would not make the number more useful.

    An interval far from both edges of the band is settled however wide: three half widths, for whoever looks after
    every round sees the 95 % interval miss the truth more often than in 5 of 100. But not while a tie is only kept from
    being one by noise that may come down to `DEAF`; `share` of the rounds that there may be were counted. The control's
    interval falls with their root, and with a late turn among the first nine, which are not trimmed, by more: of models
    that are host-bound, against themselves on an H200, nine to twelve rounds said 25 to 51 % of noise, sixty 8 to 10.
    """
    centre, half, edge = math.log(ratio.mean), math.log(ratio.high / ratio.mean), band(noise)
    if noise > DEAF and half < edge - abs(centre) and math.log1p(noise) * share <= math.log1p(DEAF):
        return False
    return half <= NARROW or min(abs(centre - edge), abs(centre + edge)) >= 3 * half


def confirms(gain: float) -> bool:
    """Whether a gain on the judge's own clock, in standard deviations, is one."""
    return gain > SURE


def claimed(ratios: Sequence[float], baseline_ms: float, kernels: int = 1) -> bool:
    """Whether the rounds so far may end in a gain, which has to be confirmed; `baseline_ms` is what a call takes."""
    return median(ratios) > 1 + CLAIM * max(MARGIN, _least(baseline_ms, kernels))


def confirmable(gain: float, rounds: int, most: int) -> bool:
    """Whether `most` rounds might confirm what `rounds`, one at least, do not, if the truth is as far above what they
    show as chance allows once in 20.

    What they show is not the truth: of planted gains of 3 % to 4 %, 7 in 50 were confirmed on an H200 where rounds
    ended as soon as as good a rest would not have been enough.
    """
    rest = (gain + LUCK) * (most - rounds) / math.sqrt(rounds)
    return (gain * math.sqrt(rounds) + rest) / math.sqrt(most) > SURE


def certifiable(shown: Ratio, noise: float) -> bool:
    """Whether more rounds might show a gain that these do not: their mean is one."""
    return math.log(shown.mean) > band(noise)


def noise_floor(control: Ratio, baseline_ms: float, kernels: int = 1) -> float:
    """What the baseline against itself may seem to gain or lose: the farther end of its interval, and `LEAST_MS` a
    kernel of the `baseline_ms` that a call takes."""
    return max(math.expm1(max(math.log(control.high), -math.log(control.low), 0.0)), _least(baseline_ms, kernels))


def _least(baseline_ms: float, kernels: int) -> float:
    return min(kernels * LEAST_MS / baseline_ms, DEAF)
