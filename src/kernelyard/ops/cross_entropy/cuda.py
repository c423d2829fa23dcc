"""The CUDA C++ rung: the .cu files beside this one, specialised for the layout at hand, launched on torch's stream."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kernelyard.kernels.launch import Bound, Launcher
from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.plans import VECTOR, RowPlan, StagedPlan
from kernelyard.kernels.powers import power_above
from kernelyard.kernels.prepared import allocator
from kernelyard.kernels.support import TYPES, cuda_refusal, dtype_refusal
from kernelyard.ops.cross_entropy import cuda_plans as plans
from kernelyard.ops.cross_entropy import layout, prepared
from kernelyard.ops.cross_entropy.cuda_columns import ColumnLaunches
from kernelyard.ops.cross_entropy.cuda_plans import StreamPlan
from kernelyard.ops.cross_entropy.derivative import fresh_gradient, registered
from kernelyard.ops.cross_entropy.rows import columns_of, gradient_strides, rows_of
from kernelyard.ops.cross_entropy.targets import target_refusal

_TARGETS = {torch.int64: "Index", torch.int32: "int"}

Outputs = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]


class Call(NamedTuple):
    """What calls that the same launches serve have in common."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    start: int
    """The input's address modulo 16."""
    target: torch.dtype
    ignore_index: int
    reduction: str
    label_smoothing: float
    z_loss: float


class Builder:
    """Makes the launches of one kind of call."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.view = rows_of(call.shape, call.strides)
        columns = columns_of(call.shape, call.strides)
        self.copied = self.view.copied and columns is None
        self.size = call.dtype.itemsize
        self.start = 0 if self.copied else call.start
        self.largest_cluster = plans.largest_cluster(call.device)
        self.reduced, self.mean = call.reduction != "none", call.reduction == "mean"
        self.options = (call.ignore_index, _bits(call.label_smoothing), _bits(call.z_loss))
        self.sizes = (*self.view[:-1], *self.options)
        self.macros: Defines = (
            ("TYPE", TYPES[call.dtype]),
            ("TARGET", _TARGETS[call.target]),
            ("REDUCED", int(self.reduced)),
            ("SMOOTH", int(call.label_smoothing != 0)),
            ("Z", int(call.z_loss != 0)),
        )
        self.columns = None if columns is None else ColumnLaunches(self, columns)

    def launcher(
        self,
        source: str,
        kernel: str,
        macros: Defines,
        threads: int,
        *,
        cluster: int = 1,
        shared_bytes: int = 0,
        overlapping: bool = False,
    ) -> Launcher:
        return Launcher(
            f"cross_entropy_cuda.{kernel}",
            Path(__file__).with_name(f"{source}.cu"),
            kernel,
            (*self.macros, *macros),
            device=self.call.device,
            threads=threads,
            cluster=cluster,
            shared_bytes=shared_bytes,
            overlapping=overlapping,
        )

    @property
    def is_small(self) -> bool:
        """Whether one launch does it all."""
        rows = self.largest_cluster > 1 and self.reduced and self.columns is None
        return rows and plans.is_small(self.view, self.size)

    def small(self) -> Bound:
        """x, target, loss, kept."""
        plan = plans.small(self.size, plans.fit_alone(self.size, self.view, self.start))
        cluster = min(self.largest_cluster, power_above(self.view.rows))
        macros = tuple((name, cluster if name == "CLUSTER" else value) for name, value in plan.macros)
        launcher = self.launcher("small", "small_forward", macros, plan.threads, cluster=cluster)
        return launcher.bind(1, 4, *self.sizes, int(self.mean))

    def rows(self, plan: RowPlan) -> Bound:
        """x, target, losses, kept, dx."""
        macros = (*plan.macros, ("SCALED", int(self.mean)))
        shared = plan.threads * plan.items * VECTOR if isinstance(plan, StagedPlan) else 0
        name, block = f"{plan.source}_forward", plan.block
        sizes = {"cluster": plan.cluster, "shared_bytes": shared}
        launcher = self.launcher(plan.source, name, macros, block, overlapping=self.mean, **sizes)
        return launcher.bind(plan.grid(self.view.rows), 5, *self.sizes)

    def stream(self, plan: StreamPlan) -> Bound:
        """x, target, losses (or the CTAs' sums), kept, parts."""
        macros = (*plan.macros, ("LOOP", int(plan.loops)), ("EXACT", int(plan.exact(self.view))))
        launcher = self.launcher("stream", "stream_forward", macros, plan.threads * plan.rows)
        return launcher.bind(plan.grid(self.view.rows), 5, *self.sizes, plan.chunks, plan.tiles)

    def join(self, plan: StreamPlan) -> Bound:
        """x, target, loss, kept, parts."""
        cluster = self.largest_cluster if self.reduced else 1
        grid = 1 if self.reduced else -(-self.view.rows // 32)
        join = self.totals("totals_join", True, cluster)
        return join.bind(grid, 5, *self.sizes, plan.chunks, int(self.mean))

    def sums(self, count: int) -> Bound:
        """CTAs' sums, loss, kept."""
        cluster = plans.totals_cluster(self.call.device, count, plans.SUMS_ALONE)
        launcher = self.totals("totals_sums", True, cluster, plans.sum_threads(count))
        return launcher.bind(1, 3, self.view.rows, int(self.mean), count)

    def scale(self) -> Bound:
        """target, kept."""
        launcher = self.totals("totals_scale", False, plans.totals_cluster(self.call.device, self.view.rows))
        return launcher.bind(1, 2, self.view.rows, int(self.mean), self.call.ignore_index)

    def total(self) -> Bound:
        """losses, loss, kept."""
        launcher = self.totals("totals_loss", True, plans.totals_cluster(self.call.device, self.view.rows, 16384))
        return launcher.bind(1, 3, self.view.rows, int(self.mean))

    def totals(self, kernel: str, overlapping: bool, cluster: int, threads: int = plans.SUM_THREADS) -> Launcher:
        macros = (
            ("VEC", 1),
            ("SHIFTED", 0),
            ("THREADS", threads),
            ("ROWS", 1),
            ("CLUSTER", cluster),
            ("OFFSET", "int"),
        )
        return self.launcher("totals", kernel, macros, threads, cluster=cluster, overlapping=overlapping)

    def gradient(self, made: bool) -> Bound:
        """Upstream gradient (0: it is 1), x, target, kept, dx; `made`: dx may be right already."""
        if self.columns is not None:
            return self.columns.backward(made)
        plan = plans.gradient_alone(self.call.device, self.size, self.view, self.fit_beside())
        groups = -(-self.view.rows // plan.rows)
        if made:
            groups = plans.looks(self.call.device, groups, plan.chunks)
        macros = (*plan.macros, ("EACH", int(not self.reduced)))
        threads = plan.threads * plan.rows
        launcher = self.launcher("gradient", "gradient_backward", macros, threads, overlapping=made)
        return launcher.bind((groups, plan.chunks), 5, *self.sizes, int(made))

    def fit_beside(self) -> plans.Fit:
        return plans.fit_beside(self.size, self.view, self.start)


def _forward(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
    *,
    keep: bool,
    gradient: bool,
) -> Outputs:
    key = layout(input, target, ignore_index, reduction, label_smoothing, z_loss)
    if keep or gradient:
        key = (*key, keep, gradient)
    run = prepared.get(key)
    if run is None:
        call = _call(input, target, ignore_index, reduction, label_smoothing, z_loss)
        run = prepared.keep(key, _prepare_forward(call, target.shape, keep, gradient))
    return run(input, target)


def _call(input: torch.Tensor, target: torch.Tensor, *options: Any) -> Call:
    start = input.data_ptr() % VECTOR
    return Call(input.shape, input.stride(), input.dtype, input.device, start, target.dtype, *options)


def _prepare_forward(call: Call, targets: torch.Size, keep: bool, gradient: bool) -> Callable[..., Outputs]:
    """What allocates the outputs and launches all that a forward pass needs; holds no tensor."""
    none, dtype, device, rows = call.reduction == "none", call.dtype, call.device, targets.numel()
    fresh_loss = allocator(targets if none else torch.Size(()), dtype, device)
    strides = gradient_strides(call.shape, call.strides)

    def outputs() -> Outputs:
        loss = fresh_loss()
        kept = torch.empty(2 * rows + (not none), dtype=torch.float32, device=device) if keep else None
        return loss, kept, torch.empty_strided(call.shape, strides, dtype=dtype, device=device) if gradient else None

    if not rows:
        return _prepare_nothing(call, outputs)
    builder = Builder(call)
    copied = builder.copied
    if builder.is_small and not gradient:
        small = builder.small()

        def run_small(input: torch.Tensor, target: torch.Tensor) -> Outputs:
            loss, kept, _ = outputs()
            data = input.contiguous() if copied else input
            small(data.data_ptr(), target.contiguous().data_ptr(), loss.data_ptr(), _address(kept))
            return loss, kept, None

        return run_small

    launch = _launches(builder, gradient)

    def run(input: torch.Tensor, target: torch.Tensor) -> Outputs:
        made = loss, kept, dx = outputs()
        data, target = input.contiguous() if copied else input, target.contiguous()
        launch(data.data_ptr(), target.data_ptr(), loss.data_ptr(), _address(kept), _address(dx))
        return made

    return run


Launches = Callable[[int, int, int, int, int], None]
"""Takes the addresses of x, target, loss, kept and dx."""


def _launches(builder: Builder, gradient: bool) -> Launches:
    """What launches all kernels of a forward pass."""
    call, view, size = builder.call, builder.view, builder.size
    if builder.columns is not None:
        return builder.columns.forward(gradient)
    if not gradient:
        return _loss_alone(builder)
    plan = plans.with_gradient(call.device, size, view, builder.fit_beside())
    if plan is not None:
        return _one_pass(builder, plan)
    # Rows that no cluster holds are read again for the gradient.
    alone, again = _loss_alone(builder), builder.gradient(False)

    def twice(x: int, target: int, loss: int, kept: int, dx: int) -> None:
        alone(x, target, loss, kept, dx)
        again(0, x, target, kept, dx)

    return twice


def _one_pass(builder: Builder, plan: RowPlan) -> Launches:
    main, total, rows, device = builder.rows(plan), builder.total(), builder.view.rows, builder.call.device
    scale = builder.scale() if builder.mean else None

    def run(x: int, target: int, loss: int, kept: int, dx: int) -> None:
        losses = torch.empty(rows, dtype=torch.float32, device=device)
        if scale is not None:
            scale(target, kept)
        main(x, target, losses.data_ptr(), kept, dx)
        total(losses.data_ptr(), loss, kept)

    return run


def _loss_alone(builder: Builder) -> Launches:
    view, device = builder.view, builder.call.device
    plan = plans.loss_alone(device, builder.size, view, plans.fit_alone(builder.size, view, builder.start))
    main = builder.stream(plan)
    if plan.chunks > 1:
        join, floats = builder.join(plan), 4 * view.rows * plan.chunks

        def joined(x: int, target: int, loss: int, kept: int, _: int) -> None:
            parts = torch.empty(floats, dtype=torch.float32, device=device)
            main(x, target, 0, kept, parts.data_ptr())
            join(x, target, loss, kept, parts.data_ptr())

        return joined
    if not builder.reduced:
        return main
    count = plan.grid(view.rows)
    total = builder.sums(count)

    def summed(x: int, target: int, loss: int, kept: int, _: int) -> None:
        sums = torch.empty(2 * count, dtype=torch.float32, device=device)
        main(x, target, sums.data_ptr(), kept, 0)
        total(sums.data_ptr(), loss, kept)

    return summed


def _prepare_nothing(call: Call, outputs: Callable[[], Outputs]) -> Callable[..., Outputs]:
    """A loss over no rows: the sum is 0 and the mean NaN, as in torch."""
    nothing, factor = (0.0, 1.0) if call.reduction == "sum" else (float("nan"), float("inf"))

    def run(_: torch.Tensor, __: torch.Tensor) -> Outputs:
        made = loss, kept, _dx = outputs()
        loss.fill_(nothing)
        if kept is not None:
            kept.fill_(factor)
        return made

    return run


def _backward(
    grad: torch.Tensor,
    input: torch.Tensor,
    target: torch.Tensor,
    kept: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
    made: torch.Tensor | None = None,
) -> torch.Tensor:
    dx = fresh_gradient(input) if made is None else made
    if not target.numel():
        return dx
    key = (*layout(input, target, ignore_index, reduction, label_smoothing, z_loss), made is None)
    run = prepared.get(key)
    if run is None:
        call = _call(input, target, ignore_index, reduction, label_smoothing, z_loss)
        run = prepared.keep(key, _prepare_backward(call, made is not None))
    run(grad, input, target, kept, dx)
    return dx


def _prepare_backward(call: Call, made: bool) -> Callable[..., None]:
    builder = Builder(call)
    launch, copied = builder.gradient(made), builder.copied

    def run(
        grad: torch.Tensor, input: torch.Tensor, target: torch.Tensor, kept: torch.Tensor, dx: torch.Tensor
    ) -> None:
        data, grad, target = input.contiguous() if copied else input, grad.contiguous(), target.contiguous()
        launch(grad.data_ptr(), data.data_ptr(), target.data_ptr(), kept.data_ptr(), dx.data_ptr())

    return run


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _bits(value: float) -> int:
    """A double as the 64 bits of a kernel's argument."""
    return int(struct.unpack("q", struct.pack("d", value))[0])


def refusal(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> str | None:
    """Why this backend does not take the input, or None."""
    return cuda_refusal(input) or dtype_refusal(input) or target_refusal(input, target)


cross_entropy: Callable[..., torch.Tensor] = registered("cuda", _forward, _backward)
