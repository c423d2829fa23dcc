"""A whole run of trials: in this process, or in several beside each other."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from kernelyard.core import interpreter
from kernelyard.trials.canary import Canary
from kernelyard.trials.sample import Kind, Sample
from kernelyard.trials.trial import Court, Outcome, try_all

# After so many hostile samples an honest one is judged again: as many as one process of several is given at a time.
EVERY = 8


def run(
    samples: Sequence[Sample],
    control: Sample,
    court: Court,
    *,
    jobs: int = 1,
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[Outcome]:
    """The outcome of every sample, as each is done; `control` is an honest one that is judged again in between.

    With several jobs times mean little, and the GPU's memory is looked at when all are done.
    """
    if jobs == 1:
        with Canary(court.device) as canary:
            yield from try_all(samples, control, court, canary, every=EVERY, on_start=on_start)
        return
    # The slow ones first, so that none is left alone at the end.
    ordered = sorted(samples, key=lambda sample: not sample.slow)
    groups = [ordered[start : start + EVERY] for start in range(0, len(ordered), EVERY)]
    spawn = multiprocessing.get_context("spawn")
    with Canary(court.device) as canary:
        with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
            futures = [pool.submit(_group, group, control, court) for group in groups]
            for future in as_completed(futures):
                yield from future.result()
        left = [change for change in canary.changes() if "descriptors" not in change and "processes" not in change]
    if left:
        yield Outcome(
            name="all together", kind=Kind.ABUSE.value, catalogue="", what="What is left behind after all of them.",
            expect=(), status=None, message="", seconds=0.0, success=", ".join(left),
        )  # fmt: skip


def _group(samples: Sequence[Sample], control: Sample, court: Court) -> list[Outcome]:
    interpreter.choose_for(court.device.type)
    with Canary(court.device, gpu_memory=False) as canary:
        return list(try_all(samples, control, court, canary, every=EVERY))
