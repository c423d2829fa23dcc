"""How classes that lie apart are launched: what is in columns.cu, for the layout at hand."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from kernelyard.kernels import plans
from kernelyard.kernels.launch import Bound
from kernelyard.kernels.plans import ColumnPlan
from kernelyard.kernels.powers import power_above
from kernelyard.ops.cross_entropy import cuda_plans
from kernelyard.ops.cross_entropy.cuda_plans import WARP
from kernelyard.ops.cross_entropy.rows import Columns

if TYPE_CHECKING:
    from kernelyard.ops.cross_entropy.cuda import Builder

PART_FLOATS = 4
"""Of what a chunk leaves of a row."""
WIDE, LANES, THREADS = 4, 32, 256
"""Elements of a load, most vectors side by side, most threads of a CTA. The loss alone: two or eight elements of 16
bits 49 and 42 % of the copy at 19 classes where four have 71; 512 threads 40 % at 150 where 256 have 69."""
CLASSES = {2: 10, 4: 5}
"""Most classes of a thread, by an element's bytes: of 19 in fp32 5 have 93 % and 10 have 80, in bf16 61 and 71. Twice
as many where fewer threads to a column leave more columns side by side: of 150 69 for 61 % in bf16, 92 for 82 in fp32.
"""
ALONG = 32
"""Most threads of a column, beside 8 vectors: of as many classes as they hold."""


def plan_of(view: Columns, size: int, start: int) -> ColumnPlan:
    """For elements of `size` bytes from an address that is `start` modulo a vector's bytes."""
    alignment = plans.alignment((start,))
    if view.length > CLASSES[size] * ALONG:
        return plans.columns(cuda_plans.LOSS, *view, size, alignment)
    vec = WIDE
    while view.inner % vec or alignment % (vec * size):
        vec //= 2
    along = power_above(-(-view.length // CLASSES[size]))
    if LANES * along > THREADS:
        along //= 2
    across = min(LANES, power_above(-(-view.inner // vec)), THREADS // along)
    along = max(along, WARP // across)
    return ColumnPlan(vec, across, along, -(-view.length // along))


class ColumnLaunches:
    """Binds the kernels of one kind of call, whose classes lie apart."""

    def __init__(self, builder: "Builder", view: Columns) -> None:
        self.builder, self.view = builder, view
        self.plan = plan_of(view, builder.size, builder.start)
        across = self.plan.across * self.plan.vec
        self.grid = view.outer * -(-view.inner // across), self.plan.chunks
        self.sizes = (view.rows, view.length, view.inner)

    def bind(
        self,
        kernel: str,
        addresses: int,
        *sizes: int,
        places: int | None = None,
        scaled: bool = False,
        overlapping: bool = False,
    ) -> Bound:
        """`places`: CTAs along the columns, where they are not one for each place."""
        each = int(not self.builder.reduced)
        macros = (*self.plan.macros, ("SCALED", int(scaled)), ("EACH", each))
        launcher = self.builder.launcher("columns", kernel, macros, self.plan.block, overlapping=overlapping)
        return launcher.bind((places or self.grid[0], self.grid[1]), addresses, *sizes)

    def forward(self, gradient: bool) -> Callable[[int, int, int, int, int], None]:
        """x, target, loss, kept, dx."""
        builder, count, device = self.builder, self.grid[0], self.builder.call.device
        main = self._forward(gradient and builder.mean)
        scale = builder.scale() if gradient and builder.mean else None
        if not builder.reduced:
            return main
        total = builder.sums(count)

        def reduced(x: int, target: int, loss: int, kept: int, dx: int) -> None:
            sums = torch.empty(2 * count, dtype=torch.float32, device=device)
            if scale is not None:
                scale(target, kept)
            main(x, target, sums.data_ptr(), kept, dx)
            total(sums.data_ptr(), loss, kept)

        return reduced

    def _forward(self, scaled: bool) -> Callable[[int, int, int, int, int], None]:
        """x, target, losses (or the CTAs' sums), kept, dx."""
        options, sizes = self.builder.options, (*self.sizes, *self.builder.options)
        if self.plan.chunks == 1:
            return self.bind("columns_forward", 5, *sizes, scaled=scaled, overlapping=scaled)
        part = self.bind("columns_part", 3, *self.sizes[1:], options[0], self.plan.tiles, scaled=scaled)
        join = self.bind("columns_join", 6, *sizes, self.plan.tiles, scaled=scaled)
        floats, device = PART_FLOATS * self.view.rows * self.plan.chunks, self.builder.call.device

        def joined(x: int, target: int, losses: int, kept: int, dx: int) -> None:
            parts = torch.empty(floats, dtype=torch.float32, device=device)
            part(x, target, parts.data_ptr())
            join(x, target, losses, kept, dx, parts.data_ptr())

        return joined

    def backward(self, made: bool) -> Bound:
        """Upstream gradient (0: it is 1), x, target, kept, dx; `made`: dx may be right already."""
        places, chunks = self.grid
        some = cuda_plans.looks(self.builder.call.device, places, chunks) if made else places
        sizes = (*self.sizes, *self.builder.options, self.plan.tiles, places, int(made))
        return self.bind("columns_backward", 5, *sizes, places=some, overlapping=made)
