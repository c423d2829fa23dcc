"""Many verdicts in a row: whether the judge tires, and what it leaves behind."""

import random
from collections.abc import Sequence

from kernelyard.core.errors import UsageError
from kernelyard.trials.sample import Kind, Sample

HOSTILE_EVERY = 5


def drawn(samples: Sequence[Sample], verdicts: int, seed: int = 0) -> list[Sample]:
    """So many of `samples`, all of which run here, in random order: one in five hostile, none slow or known to succeed.

    One canary watches over all: what the first verdict leaves behind shows at once, what each of five hundred leaves a
    little of shows too.
    """
    fast = [sample for sample in samples if not sample.slow and not sample.open]
    honest = [sample for sample in fast if sample.kind is Kind.HONEST]
    hostile = [sample for sample in fast if sample.kind is not Kind.HONEST]
    if not honest or not hostile:
        raise UsageError("a soak needs honest and hostile samples that run here")
    draw = random.Random(seed)
    return [draw.choice(hostile if i % HOSTILE_EVERY == HOSTILE_EVERY - 1 else honest) for i in range(verdicts)]
