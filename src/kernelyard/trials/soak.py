"""Many verdicts in a row: whether the judge tires, and what it leaves behind."""

import random
from collections.abc import Iterator, Sequence

from kernelyard.core.errors import UsageError
from kernelyard.trials.canary import Canary
from kernelyard.trials.sample import Kind, Sample
from kernelyard.trials.trial import Court, Outcome, try_one

HOSTILE_EVERY = 5


def soak(samples: Sequence[Sample], court: Court, verdicts: int, seed: int = 0) -> Iterator[Outcome]:
    """The outcomes of so many verdicts, one in five of them on a hostile sample that no longer succeeds.

    Slow samples are left out. One canary watches over all: what the first verdict leaves behind shows at once, what
    each of five hundred leaves a little of shows too.
    """
    fast = [sample for sample in samples if sample.runs_on(court.device.type) and not sample.slow and not sample.open]
    honest = [sample for sample in fast if sample.kind is Kind.HONEST]
    hostile = [sample for sample in fast if sample.kind is not Kind.HONEST]
    if not honest or not hostile:
        raise UsageError("a soak needs honest and hostile samples that run here")
    draw = random.Random(seed)
    with Canary(court.device) as canary:
        for i in range(verdicts):
            pool = hostile if i % HOSTILE_EVERY == HOSTILE_EVERY - 1 else honest
            yield try_one(draw.choice(pool), court, canary)
