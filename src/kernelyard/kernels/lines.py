"""From a plan to launches: the kernels of a family that works along rows or columns, bound to the sizes at hand.

A family is a .cu for each `source` that a plan may name, with kernels named `<kernel>_<direction>`. Their arguments are
addresses; parts, where CTAs meet through device memory; rows, but for kernels whose grid gives them; length; pitch,
or inner for columns; the family's own numbers; and the share or the tiles of a CTA.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from kernelyard.kernels import plans
from kernelyard.kernels.launch import Launcher
from kernelyard.kernels.layout import Rows
from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.support import TYPES
from kernelyard.kernels.zeroed import zeroed

Launch = Callable[..., None]


def bits(value: float) -> int:
    """A float as an argument of a kernel, whose arguments are all 64 bits wide."""
    return int.from_bytes(struct.pack("<f", value), "little")


@dataclass(frozen=True)
class Family:
    """Kernels that work along rows or columns, in one direction."""

    label: str
    """Launches are counted under `<label>.<kernel>_<direction>`."""
    folder: Path
    limits: plans.Limits
    prefix: str = ""
    """Beginning of the files' names, which end in `<plan.source>.cu`."""
    part_bytes: int = 8
    """Of what a CTA hands to others through device memory."""

    def prepare(
        self,
        view: Rows,
        aligned: tuple[int, ...],
        steps: tuple[int, ...],
        *numbers: int,
        macros: Defines = (),
    ) -> Launch:
        """What takes an address for each of `steps` and launches all that the view needs.

        `aligned`: addresses of what moves by vectors, or others that lie alike; 0 for fresh tensors. `steps`: bytes
        from one row to the next. `numbers`: the family's own arguments.
        """
        size, device = view.data.element_size(), view.data.device
        plan: plans.Plan
        if view.inner > 1:
            plan = plans.columns(self.limits, view.outer, view.length, view.inner, size, plans.alignment(aligned))
        else:
            fit = plans.fit(size, view.length, view.pitch, aligned)
            plan = plans.rows(self.limits, device, size, view.length, fit)
            if self.limits.unbounded and isinstance(plan, plans.StagedPlan):
                macros = (*macros, ("FILLED", int(plan.filled(view.length))))
        launchers = [self._launcher(plan, kernel, view.data.dtype, device, macros) for kernel in plan.kernels]
        if isinstance(plan, plans.RowPlan):
            grid = plan.grid(view.outer)
            return launchers[0].bind(grid, len(steps), view.outer, view.length, view.pitch, *numbers)
        if isinstance(plan, plans.ChipPlan):
            return self._chip(plan, launchers[0], view, len(steps), numbers)
        if isinstance(plan, plans.SplitPlan):
            return self._split(plan, launchers, view, steps, numbers)
        if plan.chunks == 1:
            return launchers[0].bind(plan.grid(view), len(steps), view.length, view.inner, *numbers)
        return self._long_columns(plan, launchers, view, len(steps), numbers)

    def _launcher(
        self, plan: plans.Plan, kernel: str, dtype: torch.dtype, device: torch.device, macros: Defines
    ) -> Launcher:
        return Launcher(
            f"{self.label}.{kernel}_{self.limits.name}",
            self.folder / f"{self.prefix}{plan.source}.cu",
            f"{kernel}_{self.limits.name}",
            (("TYPE", TYPES[dtype]), *plan.macros, *macros),
            device=device,
            threads=plan.block,
            cluster=plan.cluster,
            shared_bytes=plan.shared_bytes(self.limits) if isinstance(plan, plans.StagedPlan | plans.ChipPlan) else 0,
            cooperative=isinstance(plan, plans.ChipPlan),
        )

    def _chip(
        self, plan: plans.ChipPlan, launcher: Launcher, view: Rows, tensors: int, numbers: tuple[int, ...]
    ) -> Launch:
        sizes = (view.outer, view.length, view.pitch, *numbers, plan.share)
        bound = launcher.bind(plan.ctas, tensors + 1, *sizes)
        words, device = view.outer * plan.ctas * self.part_bytes // 8, view.data.device

        def launch(*addresses: int) -> None:
            # Of this launch alone, since a graph or another stream may run the same launch at the same time.
            parts = zeroed(words, device)
            bound(*addresses, parts.data_ptr())

        return launch

    def _split(
        self,
        plan: plans.SplitPlan,
        launchers: list[Launcher],
        view: Rows,
        steps: tuple[int, ...],
        numbers: tuple[int, ...],
    ) -> Launch:
        most, device = min(plan.batch, view.outer), view.data.device
        sizes = (view.length, view.pitch, *numbers, plan.tiles)
        bound = {
            rows: [launcher.bind((plan.chunks, rows), len(steps) + 1, *sizes) for launcher in launchers]
            for rows in {most, view.outer % most or most}
        }

        def launch(*addresses: int) -> None:
            parts = torch.empty(most * plan.chunks * self.part_bytes, dtype=torch.uint8, device=device)
            for first in range(0, view.outer, most):
                at = [address and address + first * step for address, step in zip(addresses, steps, strict=True)]
                for run in bound[min(most, view.outer - first)]:
                    run(*at, parts.data_ptr())

        return launch

    def _long_columns(
        self,
        plan: plans.ColumnPlan,
        launchers: list[Launcher],
        view: Rows,
        tensors: int,
        numbers: tuple[int, ...],
    ) -> Launch:
        sizes = (view.length, view.inner, *numbers, plan.tiles)
        part, write = (launcher.bind(plan.grid(view), tensors + 1, *sizes) for launcher in launchers)
        bytes_, device = view.outer * plan.chunks * view.inner * self.part_bytes, view.data.device

        def launch(*addresses: int) -> None:
            parts = torch.empty(bytes_, dtype=torch.uint8, device=device)
            part(*addresses, parts.data_ptr())
            write(*addresses, parts.data_ptr())

        return launch
