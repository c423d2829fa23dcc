"""How much is asked of a solution."""

import math
from dataclasses import dataclass
from pathlib import Path

from kernelyard.core.operator import Tolerance


@dataclass(frozen=True)
class Plan:
    """Counts of the protocol, and what is allowed."""

    trials: int = 3
    """Fresh inputs checked before anything is timed. A cached first answer fails the second."""
    large_stresses: int = 2
    """Questions that are stressed as a whole, where inputs and answers take more than `round_bytes`; the other stresses
    then have some rows each, where rows have nothing to do with each other. A smaller problem gets all."""
    stress_seconds: float = 10.0
    """How long the judge makes stressed questions; those that are left then are skipped by name."""
    again_seconds: float = 0.25
    """How long it makes those of them that are asked again among the timed calls; one at least."""
    rounds: int = 9
    """Paired rounds of baseline and solution at least; the first is a warm-up. Eight ratios give an interval worth its
    name."""
    most_rounds: int = 60
    """And at most, while the interval is too wide to decide."""
    seconds: float = 60.0
    """No round beyond the least is begun after this long."""
    patience: int = 3
    """Rounds tried for every round needed, or for eight where fewer are, before the doubtful ones are held against the
    solution."""
    calls: int = 8
    """Calls a round of either side, each on inputs of its own, as far as `round_bytes` reaches."""
    round_ms: float = 16.0
    """And no more of a device's, once it is known what one takes the baseline, than take so long. On an H100 four a
    turn of 3 to 47 ms knew the ratio to 0.1 to 0.2 % after the least of rounds, of which half is enough, and were 11 of
    20 s of a verdict on the longest. Of fewer than three a turn no median is free of one that was late: with two, one
    verdict of two on calls of 1.3 ms had 20 or 40 rounds, and took longer than with four."""
    bare_calls: int = 32
    """Calls at most of a device's request without flushes, by which the judge's own clock confirms a gain. One of 32
    calls of 1.2 ms differs from the next by 0.6 ms on an H100 (one standard deviation), where 3 % are 1.1."""
    bare_ms: float = 40.0
    """And no more of them than take so long on the baseline: in shorter ones the request itself is the noise."""
    outside_repeats: int = 5
    """Requests of N and of 2N calls, 2N as many as a round's of either side, by which the judge's own clock bounds a
    call; the least counts."""
    doubt_seconds: float = 4.5
    """How long a doubt of that clock is left alone before it is asked the last time; before that it is asked again at
    once, for the least of few requests is not low each time: of 31 honest verdicts on a softmax of 6.6 us, on H100s,
    two were doubted and one of them twice. A try takes a tenth to a third of a second, and while another judge's fork
    bomb ran for 8 s on the same two cores all requests of an honest softmax were 2 ms a call late, and of its baseline
    not."""
    second_look: float = 10.0
    """A speedup above this is measured again from the start, in new processes."""
    round_bytes: int = 256 << 20
    """Bytes of inputs and answers of one round. A problem larger than this gets one call a round."""
    tolerance: Tolerance = Tolerance()
    sanitizer: Path | None = None
    """compute-sanitizer, for one more call under it; None for none."""

    def calls_of(self, question_bytes: int, milliseconds: float = 0.0) -> int:
        """Calls a round of either side, on inputs and answers of so many bytes each.

        `milliseconds`: what a call takes the baseline on a device; 0 where that is not known, and on a CPU, where the
        least of several counts.
        """
        in_time = math.ceil(self.round_ms / milliseconds) if milliseconds else self.calls
        return max(1, min(self.calls, self.round_bytes // max(question_bytes, 1), in_time))

    def calls_in_turn(self, question_bytes: int, milliseconds: float = 0.0) -> int:
        """Of them, in each of a side's two turns."""
        return -(-self.calls_of(question_bytes, milliseconds) // 2)

    def calls_bare(self, question_bytes: int, milliseconds: float) -> int:
        """Of a request without flushes: `milliseconds` is what a call takes the baseline."""
        room = self.round_bytes // max(question_bytes, 1)
        return max(
            self.calls_in_turn(question_bytes, milliseconds),
            int(min(self.bare_calls, room, self.bare_ms / milliseconds)),
        )
