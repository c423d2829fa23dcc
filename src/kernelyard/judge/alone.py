"""The baseline once more, when the solution is gone.

A stopped process launches nothing, but on a GPU what it launched before runs on: a kernel, or a copy with a kernel
behind it, takes time slices, bandwidth and cache from the baseline in its turns. One that spins all through them makes
the solution look twice as fast, by calculation. Whatever it is ends with the process, and then the baseline is as fast
as it was all along. On a CPU there is nothing of the kind: who is stopped does not run.
"""

from dataclasses import replace
from statistics import geometric_mean

from kernelyard.core.verdict import Decision, Flag, Timing
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import Findings, blameless
from kernelyard.judge.turns import one_of, take_turn, unseen
from kernelyard.sandbox.session import Session

# The first turn meets what the end of a process leaves to do; the others are as many as four rounds have.
TURNS = 1 + 8
# How much longer than alone the baseline may have taken in the rounds. A device's clock drifts by a few percent in
# minutes, by estimate; a gain is a gain as long as all of it cannot be this.
DISTURBED = 1.10


def time_alone(exam: Exam, candidate: Session, baseline: Session, calls: int, found: Findings) -> None:
    """End the solution, time the baseline alone, `calls` calls a turn, and hold its times in the rounds against that.

    Where those are longer by more than `DISTURBED`, `faster` is not known. Means, not medians: who disturbs less than
    half of the rounds moves the ratio as well.
    """
    measured = found.measured
    assert measured is not None
    candidate.process.kill()
    with blameless():
        turns = [
            take_turn(baseline, [exam.arguments() for _ in range(calls)], exam, one_of, unseen, bare_calls=calls)
            for _ in range(TURNS)
        ]
    samples = tuple(sample for side in turns[1:] for sample in side.events)
    alone = Timing(samples_ms=samples, timer=measured.baseline.timer, cache=measured.baseline.cache)
    slower = geometric_mean(measured.baseline.samples_ms) / geometric_mean(samples)
    decision = measured.decision
    if decision is Decision.FASTER and slower > DISTURBED:
        decision = Decision.INCONCLUSIVE
        evidence = f"the baseline took {slower:.2f}x as long beside it as when it was gone; {DISTURBED:g}x allowed"
        found.flag(Flag(name="disturbed_baseline", evidence=evidence))
    found.measured = replace(measured, baseline_alone=alone, decision=decision)
