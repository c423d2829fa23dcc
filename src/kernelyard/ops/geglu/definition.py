"""GEGLU: what it takes, what it costs, and the cases it is proved and timed on."""

from typing import Any

import torch

from kernelyard.core.operator import Cost, Operator, Sweep
from kernelyard.core.workload import Mode, Workload
from kernelyard.ops import gated
from kernelyard.ops.cases import Cases, grid, ladder
from kernelyard.ops.geglu.reference import geglu


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    """As `gated.make_inputs`, and `approximate`, which is an option too."""
    return {**gated.make_inputs(workload, device), "approximate": workload.option("approximate", "none")}


def cost(workload: Workload, mode: Mode) -> Cost:
    """Operations of an element: forward an exponential, a division and twelve multiply-adds (the tail of the normal
    distribution), one product; backward the same again, three products and a multiply-add."""
    return gated.cost(workload, mode, forward_operations=27, backward_operations=31)


def sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    """As `gated.sweeps`; and the tanh form, at the same sizes."""
    return (*gated.sweeps(dtype, device_type), gated.sweeps(dtype, device_type, approximate="tanh")[0])


_TANH: Cases = (
    ((3, 1000), {"approximate": "tanh"}),
    ((5, 2 * 33), {"approximate": "tanh", "packed": True}),
    ((9, 130), {"approximate": "tanh", "scale": 8}),
)

DEFINITION = Operator(
    name="geglu",
    summary="gelu(gate) * up, by erf or tanh, of two tensors or of one that holds both",
    make_inputs=make_inputs,
    reference=geglu,
    cost=cost,
    differentiable=("gate", "up"),
    workloads=grid((*gated.EVERY_DTYPE, *_TANH), gated.ONCE),
    gpu_workloads=grid((*gated.ON_A_GPU, ((4096, 4096), {"approximate": "tanh", "scale": 3}))),
    sweeps=sweeps,
    targets=gated.TARGETS,
    ladder=ladder,
    workload_of=gated.workload_of,
)
