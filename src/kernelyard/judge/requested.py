"""What whole requests show of a gain in launching, of which a relay shows nothing.

A relay's calls are enqueued before they may run, so that it shows what the device takes, and nothing of what the host
takes to launch that. Of a model of a hundred launches the host's part is the larger. It is in a request of one call:
none takes longer than the request that it is alone in, and the baseline's own account of its calls is honest, as on a
CPU (`Clock.certified`). What the protocol costs is held against the solution, and so gains of milliseconds show alone.
A request of several would tell more, and let a worker that rewrites itself answer them together.
"""

import random
import secrets
from collections.abc import Iterator, Sequence
from functools import partial

from kernelyard.core.verdict import Status
from kernelyard.judge.again import Again
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import Findings, blameless
from kernelyard.judge.looks import look
from kernelyard.judge.shown import Requested
from kernelyard.judge.turns import begin_on_one_core, run_sets
from kernelyard.sandbox.session import Session
from kernelyard.sandbox.wire import Manner

PAIRS, FEW_PAIRS = 16, 4
"""After the first, which meets what has never run so. Where few of them show no gain at all, more will not: a request
is a millisecond at least, and most calls are shorter."""
STRESSED_IN = 4
"""Before one in so many of the solution's requests stands one under a stress, which does not count."""
ALONE = 8
"""The baseline's calls when the solution is gone."""


def requested(exam: Exam, candidate: Session, baseline: Session, found: Findings, again: Iterator[Again]) -> Requested:
    """Pairs in random order, each on inputs of its own; every answer of the solution's is looked at."""
    pairs: list[tuple[float, float]] = []
    for i in range(1 + PAIRS):
        pair = found.undisturbed(partial(_pair, exam, candidate, baseline, found, again))
        if i:
            pairs.append(pair)
        if len(pairs) == FEW_PAIRS and _made_of(pairs).ratio.mean < 1:
            break
    return _made_of(pairs)


def requested_alone(exam: Exam, baseline: Session) -> list[float]:
    """ms of the baseline's calls by its own account, when the solution is gone."""
    with blameless():
        return [_baseline_ms(exam, baseline) for _ in range(1 + ALONE)][1:]


def _made_of(pairs: Sequence[tuple[float, float]]) -> Requested:
    honest, own = zip(*pairs, strict=True)
    return Requested(honest, own)


def _pair(
    exam: Exam, candidate: Session, baseline: Session, found: Findings, again: Iterator[Again]
) -> tuple[float, float]:
    """ms of the baseline's call, and of the solution's request."""
    begin_on_one_core(candidate, baseline)
    took: dict[bool, float] = {}
    for own in random.sample((False, True), 2):
        if own:
            with baseline.still(Status.INFRA_ERROR):
                took[own] = _own_ms(exam, candidate, found, again)
        else:
            with candidate.still(), blameless():
                took[own] = _baseline_ms(exam, baseline)
    return took[False], took[True]


def _baseline_ms(exam: Exam, baseline: Session) -> float:
    ran = run_sets(baseline, [exam.arguments()], exam.answer, [], manner=Manner.BARE)
    ((_, host),) = ran.samples
    return host


def _own_ms(exam: Exam, candidate: Session, found: Findings, again: Iterator[Again]) -> float:
    stressed = next(again, None) if not secrets.randbelow(STRESSED_IN) else None
    if stressed is not None:
        (kept,) = run_sets(candidate, [given := stressed.arguments()], exam.answer, [0], manner=Manner.BARE).kept
        if rest := stressed.look(kept, given):
            rest()
    ran = run_sets(candidate, [given := exam.arguments()], exam.answer, [0], manner=Manner.BARE)
    (kept,) = ran.kept
    look(exam, candidate, found, kept, given)
    return ran.milliseconds
