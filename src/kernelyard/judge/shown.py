"""A gain as a relay shows it: how much sooner the device is handed back."""

import math
from dataclasses import dataclass, replace

from kernelyard.core.verdict import HandOver
from kernelyard.judge.statistics import Ratio

APART_MS = 1.5e-3
"""What two processes of one program differ by for good, in pairs on an H100: up to 1.2 us."""


@dataclass(frozen=True)
class Shown:
    """How much sooner the device is handed back by the solution than by the baseline, in ms, and its 95 % interval."""

    saved: float
    half: float
    baseline: float
    """ms of a call of the baseline's."""
    passed: tuple[float, float]
    """ms until the baseline handed the device back, and half of the interval."""
    pairs: tuple[float, ...]
    """What `saved` is the mean of, when the solution was there."""
    late: float = 0.0
    """What `saved` is less by, for the baseline was held up."""

    @property
    def ratio(self) -> Ratio:
        """Baseline over solution. More than the baseline takes nobody saves: what seems to was disturbed."""
        low, high = (self._over(self.saved + side * (self.half + APART_MS)) for side in (-1, 1))
        return Ratio(self._over(self.saved), low, high)

    def beside(self, alone: tuple[float, float]) -> "Shown":
        """What is left of it where the baseline hands the device back in `alone` ms, with half of their interval, when
        the solution is gone: what a solution leaves waiting on the device holds up who is handed it next."""
        late = max(0.0, self.passed[0] - alone[0])
        half = math.hypot(self.half, self.passed[1], alone[1])
        return replace(self, saved=self.saved - late, half=half, late=late)

    @property
    def record(self) -> HandOver:
        return HandOver(saved_ms=self.pairs, late_ms=self.late)

    def _over(self, saved: float) -> float:
        return self.baseline / max(self.baseline - saved, 1e-3 * self.baseline)

    @property
    def most(self) -> float:
        """The largest gain that is credited. Not the end of the interval: who is late in one relay of seven widens
        that, and loses little of the mean by it."""
        return self._over(self.saved + APART_MS)

    @property
    def is_possible(self) -> bool:
        return self.saved - APART_MS < self.baseline
