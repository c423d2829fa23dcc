"""The times of both sides, and whether the solution's own account of them can be believed.

A worker reports device and host times from inside the candidate's process, where a candidate can patch the clock. The
judge holds them against its own clock around the whole request. The baseline went through the same protocol with
nothing to hide, so what its requests took beyond its own account is what the protocol costs. A round in which the
solution took more than that beyond its account does not count: something disturbed it, or work was hidden in it. Either
way what is left are rounds whose times can be believed; too few of them, and the solution is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelyard.core.verdict import Flag, Timing
from kernelyard.judge.statistics import median
from kernelyard.judge.timing import timer_of

# What must pass unaccounted, in ms a call, before a round is doubted: scheduling noise of a loaded machine.
NOISE_MS = 2.0
# And what share of the time in question, and of what the protocol costs.
NOISE_SHARE = 0.5
# Work that outlives the call on the device: event time ends before the device is idle. Launch jitter is microseconds.
UNJOINED_MS = 0.1
UNJOINED_SHARE = 0.25

Samples = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Side:
    """One side of one round, in ms a call: by device events, by the host's clock, by the judge's around the request."""

    events: tuple[float, ...]
    event: float
    host: float
    outside: float

    @classmethod
    def of(cls, samples: Samples, run_seconds: float) -> "Side":
        events = tuple(event for event, _ in samples)
        return cls(events, median(events), median([host for _, host in samples]), 1e3 * run_seconds / len(samples))


class Clock:
    """Rounds of baseline and solution, and which of them count."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rounds: list[tuple[Side, Side]] = []

    def add(self, baseline: Side, solution: Side) -> None:
        self.rounds.append((baseline, solution))

    def counted(self) -> list[tuple[Side, Side]]:
        """The rounds in which the solution accounts for the time that passed."""
        return [pair for pair in self.rounds if not any(excess > allowed for _, excess, allowed in self._excess(pair))]

    def timing(self, side: int) -> Timing:
        """All samples of the counted rounds; `side` is 0 for the baseline and 1 for the solution."""
        samples = tuple(sample for pair in self.counted() for sample in pair[side].events)
        return Timing(samples_ms=samples, timer=timer_of(self.device), cache="cold")

    def medians(self) -> list[tuple[float, float]]:
        """(baseline, solution) of every counted round."""
        return [(baseline.event, solution.event) for baseline, solution in self.counted()]

    def doubt(self) -> Flag:
        """What speaks against the rounds that do not count; asked for where too few do."""
        excesses = [excess for pair in self.rounds for excess in self._excess(pair)]
        name, excess, allowed = max(excesses, key=lambda entry: entry[1] - entry[2])
        counted = len(self.counted())
        evidence = (
            f"in {len(self.rounds) - counted} of {len(self.rounds)} rounds more time passed than the solution accounts "
            f"for: up to {excess:.4g} ms a call beyond what the protocol costs the baseline, {allowed:.4g} ms allowed"
        )
        return Flag(name=name, evidence=evidence)

    def _excess(self, pair: tuple[Side, Side]) -> list[tuple[str, float, float]]:
        """(name of the flag, ms a call that the solution does not account for, ms allowed) by each outer clock."""
        baselines = [baseline for baseline, _ in self.rounds]
        scale = max(pair[1].event, median([baseline.event for baseline in baselines]))
        clocks = [("clock_mismatch", "outside", NOISE_MS, NOISE_SHARE)]
        if self.device.type != "cpu":
            clocks.append(("unjoined_work", "host", UNJOINED_MS, UNJOINED_SHARE))
        found = []
        for name, clock, noise, share in clocks:
            # The dearest round of the baseline: on a loaded machine the protocol's cost doubles from one to the next.
            cost = max(max(getattr(baseline, clock) - baseline.event for baseline in baselines), 0.0)
            excess = getattr(pair[1], clock) - pair[1].event - cost
            found.append((name, excess, max(noise, share * scale, share * cost)))
        return found
