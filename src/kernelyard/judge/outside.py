"""The judge's own clock around N and around 2N calls: an upper bound on a call's time that no candidate can touch.

What 2N calls take beyond N calls is N calls, whatever a request costs. Nothing is flushed between these calls, so
their time is the calls' own and that of handing over inputs and answers, and a worker whose account falls short of it
by more than the baseline's worker does has hidden time. The same calls give the host's time: from before a call until
the device is idle.
"""

import math
from dataclasses import dataclass

import torch

from kernelyard.core.verdict import Flag, Timing
from kernelyard.judge.statistics import median
from kernelyard.sandbox.session import Ran

# What may be missing from the account, in ms a call: two requests' jitter, spread over N calls. A loaded CPU
# disturbs the calls themselves.
NOISE_MS = {"cpu": 1.0}
NOISE_DEVICE_MS = 0.02
NOISE_SHARE = 0.25


@dataclass(frozen=True)
class Outside:
    """One worker's calls, in ms: by the judge's clock, and each as the worker accounts for it."""

    marginal: float
    accounts: tuple[float, ...]

    @property
    def missing(self) -> float:
        """What the account leaves out."""
        return self.marginal - median(self.accounts)

    def timing(self) -> Timing:
        return Timing(samples_ms=self.accounts, timer="host", cache="warm")


class Least:
    """The requests of N and of 2N calls of one worker that took least, for noise only adds.

    Each is on inputs of its own: who knew them would answer from memory, and that would be the least.
    """

    def __init__(self) -> None:
        self._accounts: list[float] = []
        self._seconds: dict[int, float] = {}

    def add(self, ran: Ran) -> bool:
        """Whether it took the least of so many calls so far."""
        self._accounts += [host for _, host in ran.samples]
        calls = len(ran.samples)
        counts = ran.seconds < self._seconds.get(calls, math.inf)
        if counts:
            self._seconds[calls] = ran.seconds
        return counts

    def outside(self) -> Outside:
        (few, half), (many, whole) = sorted(self._seconds.items())
        return Outside(1e3 * (whole - half) / (many - few), tuple(self._accounts))


def doubt(baseline: Outside, solution: Outside, device: torch.device) -> Flag | None:
    """The flag for a solution whose account is short of what passed on the judge's clock."""
    short = solution.missing - max(baseline.missing, 0.0)
    # A share of what is claimed, too: who claims to be slow gains nothing by it.
    scale = max(baseline.marginal, median(solution.accounts))
    allowed = max(NOISE_MS.get(device.type, NOISE_DEVICE_MS), NOISE_SHARE * scale)
    if short <= allowed:
        return None
    evidence = (
        f"on the judge's clock a call takes {solution.marginal:.4g} ms, the worker accounts for "
        f"{median(solution.accounts):.4g} ms; {short:.4g} ms are missing, {allowed:.4g} ms allowed"
    )
    return Flag(name="outside_clock", evidence=evidence)
