"""A whole run of trials: in this process, or in several beside each other."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from kernelyard.core import interpreter
from kernelyard.trials.canary import Canary
from kernelyard.trials.sample import Kind, Sample
from kernelyard.trials.trial import Court, Outcome, after, try_all, try_one

# After so many hostile samples an honest one is judged again.
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
    with Canary(court.device) as canary:
        yield from _beside_each_other(samples, control, court, jobs)
        left = [change for change in canary.changes() if "descriptors" not in change and "processes" not in change]
    if left:
        yield Outcome(
            name="all together", kind=Kind.ABUSE.value, catalogue="", what="What is left behind after all of them.",
            expect=(), status=None, message="", seconds=0.0, success=", ".join(left),
        )  # fmt: skip


def _beside_each_other(samples: Sequence[Sample], control: Sample, court: Court, jobs: int) -> Iterator[Outcome]:
    # The slow ones first, so that none is left alone at the end.
    ordered = sorted(samples, key=lambda sample: not sample.slow)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        # Of a control it is kept which hostile samples ended before it began.
        waiting: dict[Future[Outcome], list[str] | None] = {
            pool.submit(_alone, sample, court): None for sample in ordered
        }
        since: list[str] = []
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                names = waiting.pop(future)
                outcome = future.result()
                if names is not None:
                    yield from after(names, outcome)
                    continue
                yield outcome
                since += [outcome.name] * outcome.hostile
            if len(since) >= EVERY or (since and not waiting):
                waiting[pool.submit(_alone, control, court)] = since
                since = []


def _alone(sample: Sample, court: Court) -> Outcome:
    interpreter.choose_for(court.device.type)
    with Canary(court.device, gpu_memory=False) as canary:
        return try_one(sample, court, canary)
