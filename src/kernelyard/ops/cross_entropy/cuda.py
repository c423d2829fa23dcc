"""The CUDA C++ rung: the .cu files beside this one, specialised for the layout at hand, launched on torch's stream."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from kernelyard.kernels.launch import Bound, Launcher
from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.plans import VECTOR, RowPlan, StagedPlan
from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.cross_entropy import cuda_plans as plans
from kernelyard.ops.cross_entropy.cuda_plans import StreamPlan
from kernelyard.ops.cross_entropy.derivative import registered
from kernelyard.ops.cross_entropy.rows import Rows, rows_of
from kernelyard.ops.cross_entropy.targets import target_refusal

_TYPES = {torch.float32: "float", torch.bfloat16: "Bfloat", torch.float16: "Half"}
_TARGETS = {torch.int64: "Index", torch.int32: "int"}
_LAYOUTS = 1024
"""Layouts whose launches are kept: as many lengths of a batch as a training run is likely to see."""


class Call(NamedTuple):
    """What calls that the same launches serve have in common."""

    dtype: torch.dtype
    device: torch.device
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    """The input's address modulo 16."""
    target: torch.dtype
    ignore_index: int
    reduction: str
    label_smoothing: float
    z_loss: float


@dataclass(frozen=True)
class Pass:
    """The launches of a forward pass, in their order; those that a call does not need are None."""

    view: Rows
    scale: Bound | None
    main: Bound
    join: Bound | None
    part_floats: int
    total: Bound | None
    gradient: Bound | None


class Builder:
    """Makes the launches of one kind of call."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.view = rows_of(call.shape, call.strides)
        self.start = 0 if self.view.copied else call.start
        self.modern = torch.cuda.get_device_capability(call.device)[0] >= 9
        self.sizes = (*self.view[:-1], call.ignore_index, _bits(call.label_smoothing), _bits(call.z_loss))
        self.macros: Defines = (
            ("TYPE", _TYPES[call.dtype]),
            ("TARGET", _TARGETS[call.target]),
            ("SMOOTH", int(call.label_smoothing != 0)),
            ("Z", int(call.z_loss != 0)),
        )

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
            overlapping=overlapping and self.modern,
        )

    def forward(self, gradient: bool) -> Pass:
        call, view, size = self.call, self.view, self.call.dtype.itemsize
        if gradient:
            fit = plans.fit_beside(size, view, self.start)
            plan = plans.with_gradient(call.device, size, view, fit)
            if plan is not None:
                mean = call.reduction == "mean"
                return Pass(
                    view, self.scale() if mean else None, self.rows(plan, mean, True), None, 0, self.total(), None
                )
        fit = plans.fit_alone(size, view, self.start)
        again = self.gradient(None) if gradient else None
        alone = plans.loss_alone(call.device, size, view, fit)
        if isinstance(alone, RowPlan):
            return Pass(view, None, self.rows(alone, False, False), None, 0, self.total(), again)
        main, join = self.stream(alone)
        return Pass(view, None, main, join, 4 * view.rows * alone.chunks, self.total(), again)

    def rows(self, plan: RowPlan, mean: bool, gradient: bool) -> Bound:
        macros = (*plan.macros, ("LOSS", self.loss_type()), ("GRADIENT", int(gradient)), ("SCALED", int(mean)))
        shared = plan.threads * plan.items * VECTOR if isinstance(plan, StagedPlan) else 0
        launcher = self.launcher(
            plan.source,
            f"{plan.source}_forward",
            macros,
            plan.block,
            cluster=plan.cluster,
            shared_bytes=shared,
            overlapping=mean,
        )
        return launcher.bind(plan.grid(self.view.rows), 5, *self.sizes)

    def stream(self, plan: StreamPlan) -> tuple[Bound, Bound | None]:
        macros = (*plan.macros, ("LOSS", self.loss_type()))
        sizes = (*self.sizes, plan.chunks, plan.tiles)
        main = self.launcher("stream", "stream_forward", macros, plan.threads)
        bound = main.bind(self.view.rows * plan.chunks, 5, *sizes)
        if plan.chunks == 1:
            return bound, None
        join = self.launcher("stream", "stream_join", macros, plan.threads, overlapping=True)
        return bound, join.bind(-(-self.view.rows * 32 // plan.threads), 5, *sizes)

    def scale(self) -> Bound:
        return self.totals("totals_scale", False).bind(1, 2, self.view.rows, self.call.ignore_index)

    def total(self) -> Bound | None:
        if self.call.reduction == "none":
            return None
        sizes = (self.view.rows, self.call.ignore_index, int(self.call.reduction == "mean"))
        return self.totals("totals_loss", True).bind(1, 4, *sizes)

    def totals(self, kernel: str, overlapping: bool) -> Launcher:
        cluster = plans.totals_cluster(self.call.device, self.view.rows)
        macros = (("VEC", 1), ("SHIFTED", 0), ("THREADS", 1024), ("ROWS", 1), ("CLUSTER", cluster), ("OFFSET", "int"))
        return self.launcher("totals", kernel, macros, 1024, cluster=cluster, overlapping=overlapping)

    def gradient(self, made: bool | None) -> Bound:
        """`made`: for a backward pass that may find its work done; None: for an upstream gradient of 1."""
        view, size = self.view, self.call.dtype.itemsize
        plan = plans.gradient_alone(self.call.device, size, view, plans.fit_beside(size, view, self.start))
        groups = -(-view.rows // plan.rows)
        if made:
            groups = plans.looks(self.call.device, groups, plan.chunks)
        macros = (*plan.macros, ("EACH", int(self.call.reduction == "none")))
        launcher = self.launcher("gradient", "gradient_backward", macros, plan.threads * plan.rows)
        return launcher.bind((groups, plan.chunks), 5, *self.sizes, int(bool(made)))

    def loss_type(self) -> str:
        return _TYPES[self.call.dtype] if self.call.reduction == "none" else "float"


@lru_cache(_LAYOUTS)
def _pass(call: Call, gradient: bool) -> Pass:
    return Builder(call).forward(gradient)


@lru_cache(_LAYOUTS)
def _again(call: Call, made: bool) -> tuple[Rows, Bound]:
    builder = Builder(call)
    return builder.view, builder.gradient(made)


@lru_cache(64)
def _total_of_nothing(call: Call) -> Bound | None:
    return Builder(call).total()


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
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    dtype, device, shape = input.dtype, input.device, input.shape
    call = Call(
        dtype,
        device,
        shape,
        input.stride(),
        input.data_ptr() % VECTOR,
        target.dtype,
        ignore_index,
        reduction,
        label_smoothing,
        z_loss,
    )
    none, rows = reduction == "none", target.numel()
    loss = torch.empty(target.shape if none else (), dtype=dtype, device=device)
    losses = loss if none else torch.empty(rows, dtype=torch.float32, device=device)
    kept = torch.empty(2 * rows + (not none), dtype=torch.float32, device=device) if keep else None
    dx = torch.empty(shape, dtype=dtype, device=device) if gradient else None
    target = target.contiguous()
    at_target, at_loss, at_losses = target.data_ptr(), loss.data_ptr(), losses.data_ptr()
    at_kept, at_dx = _address(kept), _address(dx)
    if not rows:
        total = _total_of_nothing(call)
        if total is not None:
            total(at_losses, at_target, at_loss, at_kept)
        return loss, kept, dx

    run = _pass(call, gradient)
    data = input.contiguous() if run.view.copied else input
    at_x = data.data_ptr()
    if run.scale is not None:
        run.scale(at_target, at_kept)
    if run.part_floats:
        parts = torch.empty(run.part_floats, dtype=torch.float32, device=device)
        run.main(at_x, at_target, at_losses, at_kept, parts.data_ptr())
        if run.join is not None:
            run.join(at_x, at_target, at_losses, at_kept, parts.data_ptr())
    else:
        run.main(at_x, at_target, at_losses, at_kept, at_dx)
    if run.total is not None:
        run.total(at_losses, at_target, at_loss, at_kept)
    if run.gradient is not None:
        run.gradient(0, at_x, at_target, at_kept, at_dx)
    return loss, kept, dx


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
    dx = torch.empty(input.shape, dtype=input.dtype, device=input.device) if made is None else made
    if target.numel():
        call = Call(
            input.dtype,
            input.device,
            input.shape,
            input.stride(),
            input.data_ptr() % VECTOR,
            target.dtype,
            ignore_index,
            reduction,
            label_smoothing,
            z_loss,
        )
        view, launch = _again(call, made is not None)
        data, grad, target = input.contiguous() if view.copied else input, grad.contiguous(), target.contiguous()
        launch(grad.data_ptr(), data.data_ptr(), target.data_ptr(), kept.data_ptr(), dx.data_ptr())
    return dx


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
