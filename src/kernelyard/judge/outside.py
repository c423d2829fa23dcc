"""The judge's own clock around N and around 2N calls: an upper bound on a call's time that no candidate can touch.

What 2N calls take beyond N calls is N calls, whatever a request costs. Nothing is flushed between these calls, so
their time is the calls' own, and a worker whose account falls short of it by more than the baseline's worker does has
hidden time. The same calls give the host's time: from before a call until the device is idle.
"""

from dataclasses import dataclass
from typing import Any

import torch

from kernelyard.core.verdict import Flag, Timing
from kernelyard.judge.statistics import median
from kernelyard.sandbox.session import Session

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


def measure(session: Session, sets: list[list[Any]], repeats: int) -> Outside:
    """Run half of `sets` and all of them, `repeats` times; the least of each counts, for noise only adds."""
    half = len(sets) // 2
    least = {half: float("inf"), 2 * half: float("inf")}
    accounts: list[float] = []
    for _ in range(repeats):
        for count in least:
            session.stage(sets[:count])
            samples = session.run(count, bare=True)
            accounts += [host for _, host in samples]
            least[count] = min(least[count], 1e3 * session.run_seconds)
    return Outside((least[2 * half] - least[half]) / half, tuple(accounts))


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
