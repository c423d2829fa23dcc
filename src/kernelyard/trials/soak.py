"""Many verdicts in a row: whether the judge tires, and what it leaves behind."""

import random
from collections.abc import Sequence

from kernelyard.core.errors import UsageError
from kernelyard.trials.sample import Kind, Sample

HOSTILE_EVERY = 5
# Of the hostile ones, which wait for a deadline: half a minute each.
SLOW_EVERY = 50


def drawn(samples: Sequence[Sample], verdicts: int, seed: int) -> list[Sample]:
    """So many of `samples`, all of which run here, in the random order of `seed`: one in five hostile, one in fifty
    slow, none known to succeed.

    One canary watches over all: what the first verdict leaves behind shows at once, what each of five hundred leaves a
    little of shows too.
    """
    closed = [sample for sample in samples if not sample.open]
    honest = [sample for sample in closed if sample.kind is Kind.HONEST and not sample.slow]
    hostile = [sample for sample in closed if sample.kind is not Kind.HONEST and not sample.slow]
    slow = [sample for sample in closed if sample.kind is not Kind.HONEST and sample.slow]
    if not honest or not hostile:
        raise UsageError("a soak needs honest and hostile samples that run here")
    draw = random.Random(seed)

    def one(place: int) -> Sample:
        if place % HOSTILE_EVERY:
            return draw.choice(honest)
        return draw.choice(slow if slow and place % SLOW_EVERY == 0 else hostile)

    return [one(i + 1) for i in range(verdicts)]
