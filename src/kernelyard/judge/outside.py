"""The judge's own clock around N and around 2N calls: an upper bound on a call's time that no candidate can touch.

What 2N calls take beyond N calls is N calls, whatever a request costs. Nothing is flushed between these calls, so
their time is the calls' own and that of handing the answers over, and a worker whose account falls short of it by more
than the baseline's worker does has hidden time. The same calls give the host's time: from before a call until the
device is idle.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernelyard.core.verdict import Flag, Timing
from kernelyard.judge.findings import make_room
from kernelyard.judge.statistics import median
from kernelyard.sandbox.session import Kept, Ran, Session

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
    kept: tuple[Kept, ...] = ()
    """One answer of each of the two requests that count."""

    @property
    def missing(self) -> float:
        """What the account leaves out."""
        return self.marginal - median(self.accounts)

    def timing(self) -> Timing:
        return Timing(samples_ms=self.accounts, timer="host", cache="warm")


def run_sets(session: Session, sets: list[list[Any]], answer: tuple[Tensor, ...], *, bare: bool = False) -> Ran:
    """One request with a call on each set, whose answers, like `answer`, are in the judge's hands when it ends."""
    make_room(session.device)
    session.stage(sets)
    session.lend(answer, len(sets))
    return session.run(len(sets), bare=bare)


def measure(session: Session, sets: list[list[Any]], answer: tuple[Tensor, ...], repeats: int) -> Outside:
    """Run half of `sets` and all of them, `repeats` times; the least of each counts, for noise only adds."""
    half = len(sets) // 2
    least: dict[int, Ran] = {}
    accounts: list[float] = []
    for _ in range(repeats):
        for count in (half, 2 * half):
            ran = run_sets(session, sets[:count], answer, bare=True)
            accounts += [host for _, host in ran.samples]
            if count not in least or ran.seconds < least[count].seconds:
                least[count] = ran
            del ran
    kept = tuple(ran.kept for ran in least.values() if ran.kept is not None)
    return Outside(1e3 * (least[2 * half].seconds - least[half].seconds) / half, tuple(accounts), kept)


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
