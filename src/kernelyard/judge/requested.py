"""What whole requests show of a gain in launching, of which a relay shows nothing.

A relay's calls are enqueued before they may run, so that it shows what the device takes, and nothing of what the host
takes to launch that. Of a model of a hundred launches the host's part is the larger. It is in a request of one call:
none takes longer than the request that it is alone in, and the baseline's own account of its calls is honest, as on a
CPU (`Clock.certified`). What the protocol costs is held against the solution, and so gains of milliseconds show alone.
A request of several would tell more, and let a worker that rewrites itself answer them together.
"""

import random
import secrets
from collections.abc import Iterator
from functools import partial

from kernelyard.core.verdict import Status
from kernelyard.judge.again import Again
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import Findings, blameless
from kernelyard.judge.looks import Rest, heard_out, judge, take
from kernelyard.judge.shown import Requested
from kernelyard.judge.statistics import median
from kernelyard.judge.turns import begin_on_one_core, run_sets
from kernelyard.sandbox.session import Session
from kernelyard.sandbox.wire import Manner

PAIRS, FEW_PAIRS = 16, 4
"""After the first, which meets what has never run so. Where most of a few show no gain at all, more will not: a request
is a millisecond at least, and most calls are shorter. Most and not their mean: of a gain of 1.5x, where one request in
ten is six times as long, that ends here in a third of the verdicts (simulated)."""
BEFORE = 2
"""One or so many requests of the same side come before each that counts, by lot: a process that was stopped, and has
another core than before, is slower than one that was not, up to 2.8 times on two cores."""
STRESSED_IN = 4
"""In so many of the solution's turns one of those is under a stress."""
BESIDE = 8
"""The baseline's turns when the solution is gone."""


def requested(exam: Exam, candidate: Session, baseline: Session, found: Findings, again: Iterator[Again]) -> Requested:
    """Pairs in random order, each call on inputs of its own; every answer of the solution's is looked at."""
    pairs: list[tuple[float, float]] = []
    for i in range(1 + PAIRS):
        pair = found.undisturbed(partial(_pair, exam, candidate, baseline, found, again))
        if i:
            pairs.append(pair)
        if len(pairs) == FEW_PAIRS and median([honest / own for honest, own in pairs]) < 1:
            break
    honest, own = zip(*pairs, strict=True)
    return Requested(honest, own)


def requested_beside(exam: Exam, other: Session, baseline: Session) -> list[float]:
    """ms of the baseline's calls by its own account, when the solution is gone and another worker of the reference's
    stands in its place.

    Stopped, moved and looked at alike: by itself the baseline was 1.5 to 3.1 times as quick, on two cores.
    """
    other.lender.keeps, other.lender.roomy = baseline.lender.keeps, baseline.lender.roomy
    aside = Findings()
    ask = partial(_pair, exam, other, baseline, aside, iter(()))
    with blameless():
        return [aside.undisturbed(ask)[0] for _ in range(1 + BESIDE)][1:]


def _pair(
    exam: Exam, candidate: Session, baseline: Session, found: Findings, again: Iterator[Again]
) -> tuple[float, float]:
    """ms of the baseline's call, and of the solution's request."""
    begin_on_one_core(candidate, baseline)
    took: dict[bool, float] = {}
    rests: list[Rest] = []
    with heard_out(rests):
        for own in random.sample((False, True), 2):
            if own:
                with baseline.still(Status.INFRA_ERROR):
                    took[own] = _own_ms(exam, candidate, found, again, rests)
            else:
                with candidate.still(), blameless():
                    took[own] = _baseline_ms(exam, baseline)
    return took[False], took[True]


def _baseline_ms(exam: Exam, baseline: Session) -> float:
    """Of the last of a few calls."""
    for _ in range(_calls()):
        ran = run_sets(baseline, [exam.arguments()], exam.answer, [], manner=Manner.BARE)
    ((_, host),) = ran.samples
    return host


def _own_ms(exam: Exam, candidate: Session, found: Findings, again: Iterator[Again], rests: list[Rest]) -> float:
    """Of the last of a few requests; what is left of the looks at all of them is for `rests`."""
    count = _calls()
    stressed = next(again, None) if not secrets.randbelow(STRESSED_IN) else None
    under_stress = secrets.randbelow(count - 1)
    for i in range(count):
        one = stressed if i == under_stress else None
        given = one.arguments() if one else exam.arguments()
        ran = run_sets(candidate, [given], exam.answer, [0], manner=Manner.BARE)
        (kept,) = ran.kept
        if one is None:
            rests.append(partial(judge, exam, found, take(exam, candidate, kept, given)))
        elif rest := one.look(kept, given):
            rests.append(rest)
    return ran.milliseconds


def _calls() -> int:
    return 2 + secrets.randbelow(BEFORE)
