"""Two operators made up here: one of a single result, one of two results and an argument that may be absent."""

from typing import Any

import torch

from kernelyard.core.operator import Cost, Implementation, Operator, Sweep
from kernelyard.core.workload import Mode, Workload


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(workload.seed)
    return {"x": torch.randn(workload.shape, generator=generator).to(device, workload.torch_dtype)}


def cost(workload: Workload, mode: Mode) -> Cost:
    size = torch.Size(workload.shape).numel() * workload.torch_dtype.itemsize
    passes = 2 if mode is Mode.FULL else 1
    return Cost(passes * size, passes * size, passes * size)


def sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    return (Sweep("N", "elements", tuple((n, Workload.of(n, dtype=dtype)) for n in (1000, 5000))),)


DOUBLE = Operator(
    name="double",
    summary="2x",
    make_inputs=make_inputs,
    reference=double,
    cost=cost,
    differentiable=("x",),
    workloads=(Workload.of(4),),
    gpu_workloads=(),
    sweeps=sweeps,
    ladder=lambda device_type: Workload.of(8),
    workload_of=lambda shape, dtype: Workload.of(*shape, dtype=dtype),
)


def scaled_sum(x: torch.Tensor, weight: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    scaled = x if weight is None else x * weight
    return scaled, x + scaled


def make_scaled_sum_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    x = make_inputs(workload, device)["x"]
    return {"x": x, "weight": x.flip(0) + 1 if workload.option("weight", True) else None}


def scaled_sum_sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    def at(*sizes: int, **options: Any) -> tuple[tuple[int, Workload], ...]:
        return tuple((n, Workload.of(n, dtype=dtype, **options)) for n in sizes)

    return (
        Sweep("N", "elements", at(1000, 5000)),
        Sweep("N", "elements, no weight", at(1000, weight=False), modes=(Mode.FORWARD,)),
        Sweep("M", "few elements", at(1, 8), host=True),
    )


SCALED_SUM = Operator(
    name="scaled_sum",
    summary="x w and x + x w",
    make_inputs=make_scaled_sum_inputs,
    reference=scaled_sum,
    cost=cost,
    differentiable=("x", "weight"),
    workloads=(Workload.of(6), Workload.of(6, weight=False)),
    gpu_workloads=(),
    sweeps=scaled_sum_sweeps,
    ladder=lambda device_type: Workload.of(8),
    workload_of=lambda shape, dtype: Workload.of(*shape, dtype=dtype),
    outputs=("scaled", "total"),
)
OPERATORS = {operator.name: operator for operator in (DOUBLE, SCALED_SUM)}


def willing(*arguments: object) -> None:
    return None


def honest(operator: Operator) -> Implementation:
    return Implementation("eager", operator.reference, willing)
