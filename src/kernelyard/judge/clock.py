"""The times of both sides, and whether the solution's own account of them can be believed.

A worker reports device and host times from inside the candidate's process, where a candidate can patch the clock. The
judge holds them against its own clock around the whole request. The baseline went through the same protocol with
nothing to hide, so what its requests took beyond its own account is what the protocol costs.
"""

from collections.abc import Sequence

import torch

from kernelyard.core.verdict import Flag, Timing
from kernelyard.judge.statistics import median
from kernelyard.judge.timing import timer_of

# A difference must be larger than this to count: scheduling noise of a loaded machine, in ms a call.
NOISE_MS = 2.0
# And larger than this share of the time in question.
NOISE_SHARE = 0.5
# Work that outlives the call on the device: event time ends before the device is idle. Launch jitter is microseconds.
UNJOINED_MS = 0.1
UNJOINED_SHARE = 0.25


class Clock:
    """Samples of the rounds, by side (`baseline`, `solution`)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.event: dict[str, list[list[float]]] = {"baseline": [], "solution": []}
        self.host: dict[str, list[float]] = {"baseline": [], "solution": []}
        self.outside: dict[str, list[float]] = {"baseline": [], "solution": []}

    def add(self, side: str, samples: Sequence[tuple[float, float]], run_seconds: float) -> None:
        """One round of one side: its (event, host) samples in ms and the judge's seconds for the request."""
        self.event[side].append([event for event, _ in samples])
        self.host[side].append(median([host for _, host in samples]))
        self.outside[side].append(1e3 * run_seconds / len(samples))

    def timing(self, side: str) -> Timing:
        samples = tuple(sample for round_samples in self.event[side] for sample in round_samples)
        return Timing(samples_ms=samples, timer=timer_of(self.device), cache="cold")

    def round_medians(self) -> list[tuple[float, float]]:
        """(baseline, solution) of every round."""
        return [(median(b), median(s)) for b, s in zip(self.event["baseline"], self.event["solution"], strict=True)]

    def lie(self) -> Flag | None:
        """The flag that the solution's times earn when they leave out work that was done; None when they do not."""
        claimed = {side: median([median(samples) for samples in self.event[side]]) for side in self.event}
        for name, account, noise, share in (
            ("clock_mismatch", self.outside, NOISE_MS, NOISE_SHARE),
            ("unjoined_work", self.host, UNJOINED_MS, UNJOINED_SHARE),
        ):
            if name == "unjoined_work" and self.device.type == "cpu":
                continue
            overhead = {side: median(account[side]) - claimed[side] for side in account}
            hidden = overhead["solution"] - max(overhead["baseline"], 0.0)
            if hidden > max(noise, share * max(claimed.values())):
                return Flag(
                    name=name,
                    evidence=f"claims {claimed['solution']:.4g} ms a call, but {hidden:.4g} ms a call more passed "
                    f"than the protocol costs the baseline",
                )
        return None
