"""How the CUDA kernels are launched: rows on chip as for softmax, streams where nothing has to be kept."""

from dataclasses import dataclass

import torch

from kernelyard.kernels import plans
from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.plans import LARGEST_CLUSTER, VECTOR, Fit, Limits, RowPlan, Stage, StagedPlan
from kernelyard.ops.cross_entropy.rows import Rows

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
    def macros(self) -> Defines:
        row = RowPlan(self.fit, self.threads, self.rows, self.items).macros
        return tuple((name, "Index" if name == "OFFSET" and self.wide else value) for name, value in row)


STREAM_THREADS = 512
STREAM_BYTES = 64
STREAM_CTAS = 8
"""CTAs to an SM, at least, that rows are cut up for: two waves, so that the last ones are no long wait."""
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


def loss_alone(device: torch.device, size: int, view: Rows, fit: Fit) -> RowPlan | StreamPlan:
    """The plan of a forward pass without gradient."""
    plan = plans.rows(LOSS, device, size, view.length, fit)
    if isinstance(plan, RowPlan):
        return plan
    items = _items(size, fit)
    steps = _steps(view, fit, STREAM_THREADS, items)
    chunks = min(steps, -(-STREAM_CTAS * plans.processors(device) // view.rows))
    tiles = -(-steps // chunks)
    return StreamPlan(fit, STREAM_THREADS, 1, items, -(-steps // tiles), tiles, view.length >= 1 << 30)


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


def totals_cluster(device: torch.device, rows: int) -> int:
    """CTAs of 1024 threads that add up the rows, 4 or more to a thread; one where there are no clusters."""
    if torch.cuda.get_device_capability(device)[0] < 9 or rows <= 4096:
        return 1
    return 4 if rows <= 16384 else LARGEST_CLUSTER


def looks(device: torch.device, groups: int, chunks: int) -> int:
    """CTAs along the rows that look whether there is a gradient to compute."""
    return max(1, min(groups, LOOKS * plans.processors(device) // chunks))


def _items(size: int, fit: Fit) -> int:
    """Vectors of a thread: 64 bytes, or as many single elements as fill a warp's lines."""
    return STREAM_BYTES // (fit.vec * size) if fit.vec > 1 else 16


def _steps(view: Rows, fit: Fit, threads: int, items: int) -> int:
    vectors = -(-(view.length + (fit.vec - 1 if fit.shifted else 0)) // fit.vec)
    return -(-vectors // (threads * items))
