"""How the CUDA kernels are launched: rows on chip as for softmax, streams where nothing has to be kept."""

from dataclasses import dataclass

import torch

from kernelyard.kernels import plans
from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.plans import LARGEST_CLUSTER, VECTOR, Fit, Limits, RowPlan, Stage, StagedPlan, largest_cluster
from kernelyard.kernels.powers import power_above
from kernelyard.ops.cross_entropy.rows import Rows

WARP = 32
LOSS = Limits("forward", 1, ())
WITH_GRADIENT = Limits("forward", 1, (Stage(512, 64 << 10), Stage(512, 128 << 10)))


@dataclass(frozen=True)
class StreamPlan:
    """Rows in `chunks` pieces of `tiles` steps of `threads` times `items` vectors; `rows` of them to a CTA."""

    fit: Fit
    threads: int
    rows: int
    items: int
    chunks: int
    tiles: int = 1
    wide: bool = False
    """Offsets in a row need 64 bits."""

    @property
    def loops(self) -> bool:
        return self.chunks * self.tiles > 1

    def exact(self, view: Rows) -> bool:
        """Whether all vectors of all threads are a row's."""
        return not self.fit.shifted and view.length == self.threads * self.items * self.fit.vec

    def grid(self, rows: int) -> int:
        return -(-rows // self.rows) * self.chunks

    @property
    def macros(self) -> Defines:
        row = RowPlan(self.fit, self.threads, self.rows, self.items).macros
        return tuple((name, "Index" if name == "OFFSET" and self.wide else value) for name, value in row)


STREAM_THREADS = 512
STREAM_BYTES = 64
LONG_THREADS, LONG_VECTORS = {2: 512, 4: 256}, {2: 8, 4: 16}
"""Of a row that is longer than what is read at one go, and whole in one CTA: its threads, and most vectors of a thread
at a time, by an element's bytes. fp32, for 512 threads of 4: 98.9 % of the copy at 64k for 98.3, 97.4 at 96k for 94.6,
98.7 of 50257 classes for 96.1, 98.5 of 32000 for 97.4, where 8 of 512 lose 3."""
CHUNK_VECTORS = {2: 8, 4: 4}
"""The same of 512 threads, where several CTAs share a row."""
FEW_ROWS, STREAM_CTAS = 8, 32
"""Rows to an SM below which rows are cut up, and CTAs to an SM, at least, that they are cut up for: four pieces of 256k
in bf16, 97.9 % of the copy, two 96.9, eight 97.2. 4096 rows of 64k would have 91 cut in two, and 98.7 whole."""
HELD_ELEMENTS, HELD_VECTORS = {2: 64, 4: 32}, 8
"""Elements of a thread where a row is read at one go, by an element's bytes, and most vectors."""
HELD_THREADS = {2: 256, 4: 512}
"""Most threads of a row that is read at one go, by an element's bytes. 16k: 99.3 % in bf16, with 512 threads 96."""
SUM_THREADS = 1024
SUMS_ALONE = 32768
"""CTAs' sums that one CTA adds up: for so many a cluster takes 1 us longer to meet, and images leave 98304."""
SMALL_ROWS = 1024
SMALL_BYTES = 8 << 20
"""Fewer rows and bytes are one launch's: what a cluster reads in the time that a launch takes."""
LOOKS = 4
"""CTAs to an SM that look whether a gradient is right already; enough to fill the chip where it is not."""


def fit_alone(size: int, view: Rows, address: int) -> Fit:
    """How vectors fit rows that nothing is written beside: any start will do."""
    wide = VECTOR // size
    if not address % VECTOR and not view.length % wide and not view.pitch % wide and not view.jump % wide:
        return Fit(wide, False)
    return Fit(wide, True) if view.length >= 16 * wide else Fit(1, False)


def fit_beside(size: int, view: Rows, address: int) -> Fit:
    """How vectors fit rows whose gradients lie one after another from an aligned start."""
    if (view.jump - view.run * view.length) % (VECTOR // size) and view.run < view.rows:
        return Fit(1, False)
    return plans.fit(size, view.length, view.pitch, (address, 0))


def loss_alone(device: torch.device, size: int, view: Rows, fit: Fit) -> StreamPlan:
    """The plan of a forward pass without gradient."""
    vectors, chips = _vectors(view, fit), plans.processors(device)
    few = view.rows < FEW_ROWS * chips
    long_threads, most = (STREAM_THREADS, CHUNK_VECTORS[size]) if few else (LONG_THREADS[size], LONG_VECTORS[size])
    if fit.vec == 1 or vectors < 2 * WARP:
        short = plans.rows(LOSS, device, size, view.length, fit)
        if isinstance(short, RowPlan):
            return StreamPlan(fit, short.threads, short.rows, short.items, 1)
        long_threads, most = STREAM_THREADS, _items(size, fit)
    else:
        threads = min(HELD_THREADS[size], power_above(-(-vectors * fit.vec // HELD_ELEMENTS[size])))
        if vectors <= threads * HELD_VECTORS:
            # 16 bits, 512 to 8k: 98.3, 99.0, 99.1, 98.2 and 98.3 %; with 32 elements a thread and CTAs of 128 96.4,
            # 96.8, 94.6, 96.0 and 94.7. fp32: 100.4 with 512 threads at 1k, 100.0 with 256 at 4k; with 128 99.2.
            rows = max(1, (512 if size == 4 and threads <= WARP else 256) // threads)
            return StreamPlan(fit, threads, rows, -(-vectors // threads), 1)
    # Two or more: 32000 of 16 bits reach 89.4 % in two of 4 vectors, and 87.2 in one of 8.
    steps = max(2, -(-vectors // (long_threads * most)))
    items = -(-vectors // (long_threads * steps))
    chunks = min(steps, -(-STREAM_CTAS * chips // view.rows)) if few else 1
    tiles = -(-steps // chunks)
    return StreamPlan(fit, long_threads, 1, items, -(-steps // tiles), tiles, view.length >= 1 << 30)


def is_small(view: Rows, size: int) -> bool:
    """Whether one cluster does it all."""
    return view.rows <= SMALL_ROWS and view.rows * view.length * size <= SMALL_BYTES


def small(size: int, fit: Fit) -> StreamPlan:
    """The plan of one cluster, a warp to a row."""
    return StreamPlan(fit, 1024, 1, _items(size, fit), 1)


def with_gradient(device: torch.device, size: int, view: Rows, fit: Fit) -> RowPlan | StagedPlan | None:
    """The plan of a forward pass that writes the gradient too; None for rows that no cluster holds."""
    plan = plans.rows(WITH_GRADIENT, device, size, view.length, fit)
    return plan if isinstance(plan, RowPlan) else None


def gradient_alone(device: torch.device, size: int, view: Rows, fit: Fit) -> StreamPlan:
    """The plan of a gradient computed anew: every piece by itself."""
    plan = plans.rows(LOSS, device, size, view.length, fit)
    if isinstance(plan, RowPlan):
        return StreamPlan(fit, plan.threads, plan.rows, plan.items, 1)
    items = _items(size, fit)
    steps = _steps(view, fit, STREAM_THREADS, items)
    return StreamPlan(fit, STREAM_THREADS, 1, items, steps, wide=view.length >= 1 << 30)


def totals_cluster(device: torch.device, rows: int, alone: int = 4096) -> int:
    """CTAs of 1024 threads that add up the rows: one to `alone` of them, or where there are no clusters."""
    if rows <= alone:
        return 1
    return min(largest_cluster(device), 4 if rows <= 16384 else LARGEST_CLUSTER)


def sum_threads(sums: int) -> int:
    """Threads of a CTA that adds up the CTAs' sums."""
    return 256 if sums <= 4096 else SUM_THREADS


def looks(device: torch.device, groups: int, chunks: int) -> int:
    """CTAs along the rows that look whether there is a gradient to compute."""
    return max(1, min(groups, LOOKS * plans.processors(device) // chunks))


def _items(size: int, fit: Fit) -> int:
    """Vectors of a thread: 64 bytes, or as many single elements as fill a warp's lines."""
    return STREAM_BYTES // (fit.vec * size) if fit.vec > 1 else 16


def _vectors(view: Rows, fit: Fit) -> int:
    return -(-(view.length + (fit.vec - 1 if fit.shifted else 0)) // fit.vec)


def _steps(view: Rows, fit: Fit, threads: int, items: int) -> int:
    return -(-_vectors(view, fit) // (threads * items))
