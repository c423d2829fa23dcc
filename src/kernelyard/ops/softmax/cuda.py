"""The CUDA C++ rung: the .cu files beside this one, specialised for the row at hand, launched on torch's stream."""

from pathlib import Path

import torch

from kernelyard.kernels import plans
from kernelyard.kernels.launch import Launcher
from kernelyard.kernels.layout import Rows, along
from kernelyard.kernels.plans import Limits, Stage
from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.softmax.derivative import registered

FORWARD = Limits("forward", 1, (Stage(512, 64 << 10), Stage(512, 128 << 10)))
BACKWARD = Limits("backward", 2, (Stage(256, 32 << 10), Stage(512, 72 << 10, dy_in_registers=True)))

_TYPES = {torch.float32: "float", torch.bfloat16: "Bfloat", torch.float16: "Half"}
_built: dict[tuple[object, ...], tuple[plans.Plan, list[Launcher]]] = {}


def _build(limits: Limits, plan: plans.Plan, dtype: torch.dtype, device: torch.device) -> list[Launcher]:
    return [
        Launcher(
            f"softmax_cuda.{kernel}_{limits.name}",
            Path(__file__).with_name(f"{plan.source}.cu"),
            f"{kernel}_{limits.name}",
            (("TYPE", _TYPES[dtype]), *plan.macros),
            device=device,
            threads=plan.block,
            cluster=plan.cluster,
            shared_bytes=plan.shared_bytes(limits) if isinstance(plan, plans.StagedPlan) else 0,
        )
        for kernel in plan.kernels
    ]


def _forward(x: torch.Tensor, dim: int) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        view = along(x, dim)
        _run(FORWARD, view, (view.data, y), (view.length, view.pitch))
    return y


def _backward(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    dx = torch.empty_like(y, memory_format=torch.contiguous_format)
    if y.numel():
        view = along(y.contiguous(), dim)
        _run(BACKWARD, view, (dy.contiguous(), view.data, dx), (view.length,))
    return dx


def _run(limits: Limits, view: Rows, tensors: tuple[torch.Tensor, ...], sizes: tuple[int, ...]) -> None:
    """Launch what the view needs. `tensors` are the kernel's, the last one its output; `sizes` end its arguments."""
    like = view.data
    addresses = tuple([tensor.data_ptr() for tensor in tensors])
    if view.inner > 1:
        _run_columns(limits, view, addresses)
        return
    fit = plans.fit(like.element_size(), view.length, view.pitch, addresses)
    key = (limits.name, like.dtype, like.device.index, view.length, fit)
    built = _built.get(key)
    if built is None:
        plan = plans.rows(limits, like.device, like.element_size(), view.length, fit)
        built = _built[key] = (plan, _build(limits, plan, like.dtype, like.device))
    chosen, launchers = built
    if isinstance(chosen, plans.RowPlan):
        launchers[0](chosen.grid(view.outer), *addresses, view.outer, *sizes)
    elif isinstance(chosen, plans.SplitPlan):
        _run_split(chosen, launchers, view, addresses, sizes)


def _run_split(
    plan: plans.SplitPlan,
    launchers: list[Launcher],
    view: Rows,
    addresses: tuple[int, ...],
    sizes: tuple[int, ...],
) -> None:
    part, write = launchers
    rows = min(plan.batch, view.outer)
    parts = torch.empty(rows * plan.chunks * 2, dtype=torch.float32, device=view.data.device)
    pitches = [view.pitch] * (len(addresses) - 1) + [view.length]
    for first in range(0, view.outer, plan.batch):
        grid = (plan.chunks, min(rows, view.outer - first))
        at = [
            address + first * pitch * view.data.element_size()
            for address, pitch in zip(addresses, pitches, strict=True)
        ]
        part(grid, *at[:-1], parts.data_ptr(), *sizes, plan.tiles)
        write(grid, *at, parts.data_ptr(), *sizes, plan.tiles)


def _run_columns(
    limits: Limits,
    view: Rows,
    addresses: tuple[int, ...],
) -> None:
    like = view.data
    alignment = plans.VECTOR
    while any(address % alignment for address in addresses):
        alignment //= 2
    plan = plans.columns(limits, view.outer, view.length, view.inner, like.element_size(), alignment)
    key = (limits.name, like.dtype, like.device.index, plan)
    if key not in _built:
        _built[key] = (plan, _build(limits, plan, like.dtype, like.device))
    launchers, grid = _built[key][1], plan.grid(view)
    if plan.chunks == 1:
        launchers[0](grid, *addresses, view.length, view.inner)
        return
    part, write = launchers
    parts = torch.empty(view.outer * plan.chunks * view.inner * 2, dtype=torch.float32, device=like.device)
    part(grid, *addresses[:-1], parts.data_ptr(), view.length, view.inner, plan.tiles)
    write(grid, *addresses, parts.data_ptr(), view.length, view.inner, plan.tiles)


def refusal(x: torch.Tensor, dim: int) -> str | None:
    """Why this backend does not take the input, or None."""
    return cuda_refusal(x) or dtype_refusal(x)


softmax = registered("cuda", _forward, _backward)
