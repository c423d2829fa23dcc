"""Fused add and RMS norm: what it takes, what it costs, and the cases it is proved and timed on."""

from functools import partial
from typing import Any

import torch

from kernelyard.core.operator import Cost, Operator, Sweep
from kernelyard.core.workload import Mode, Workload
from kernelyard.ops.cases import Cases, by_length, grid, ladder, of_mode, small, to_reach
from kernelyard.ops.fused_add_rms_norm.reference import fused_add_rms_norm
from kernelyard.ops.inputs import generator_of
from kernelyard.ops.norm_cases import ON_A_GPU, norm_cost, parameter, values, workload_over_rows


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    """`x` and `residual` alike, `weight` around 1 - offset, `eps`, `offset`, `casting`.

    Options: those and `layout` (contiguous, transposed, sliced, expanded, misaligned), `scale` and `shift` of x and
    residual; `residual_layout` of the residual where it is another; `weight=False`; `weight_dtype`.
    """
    generator = generator_of(workload, device)
    offset = workload.option("offset", 0.0)
    x = values(workload, device, generator)
    beside = dict(workload.options)
    beside["layout"] = workload.option("residual_layout", workload.option("layout", "contiguous"))
    residual = values(Workload.of(*workload.shape, dtype=workload.dtype, **beside), device, generator)
    weight = parameter(workload, device, generator, 1 - offset) if workload.option("weight", True) else None
    return {
        "x": x,
        "residual": residual,
        "weight": weight,
        "eps": workload.option("eps", 1e-6),
        "offset": offset,
        "casting": workload.option("casting", "gemma"),
    }


def cost(workload: Workload, mode: Mode) -> Cost:
    """rms_norm's, and beside it the residual read and the total written, the total's own gradient read.

    Operations per element: one addition more than rms_norm each way.
    """
    parameters = int(workload.option("weight", True))
    plain = norm_cost(workload, Mode.FORWARD, parameters=parameters, statistics=1, operations=(5, 10))
    # The backward reads the total, which lies whole however x and the residual do.
    options = {name: value for name, value in workload.options if name != "layout"}
    total = Workload.of(*workload.shape, dtype=workload.dtype, **options)
    back = norm_cost(total, Mode.BACKWARD, parameters=parameters, statistics=1, operations=(5, 10))
    whole = torch.Size(workload.shape).numel() * workload.torch_dtype.itemsize
    beside = workload.option("residual_layout", workload.option("layout", "contiguous"))
    residual = whole // max(workload.shape[0], 1) if beside == "expanded" else whole
    forward = Cost(plain.read_bytes + residual, plain.write_bytes + whole, plain.operations)
    return of_mode(forward, Cost(back.read_bytes + whole, back.write_bytes, back.operations), mode)


def public_arguments(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of `kernelyard.ops.fused_add_rms_norm`, for a backend's."""
    return (x, residual, weight, eps), {"offset": offset, "casting": casting}


def sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    """Row lengths; on a GPU also the host's time for few rows."""
    lengths = by_length(dtype, device_type)
    return (lengths,) if device_type == "cpu" else (lengths, small(dtype))


_EVERY_DTYPE: Cases = (
    ((5, 96), {}),
    ((3, 1000), {}),
    ((4, 1), {}),
    ((37, 3), {}),
    ((2, 1023), {}),
    ((1, 4099), {}),
    ((6, 100), {"layout": "sliced"}),
    ((4, 129), {"layout": "misaligned"}),
    ((9, 257), {"shift": 100}),
    ((7, 64), {"weight": False}),
    ((7, 65), {"offset": 1.0}),
    ((7, 66), {"casting": "llama"}),
    ((7, 67), {"casting": "t5", "weight_dtype": "bfloat16"}),
)
_ONCE: Cases = (
    ((13,), {}),
    ((0, 16), {}),
    ((4, 0), {}),
    ((2, 3, 4, 5), {}),
    ((64, 48), {"layout": "transposed"}),
    ((5, 130), {"layout": "expanded"}),
    ((5, 130), {"residual_layout": "sliced"}),
    ((5, 130), {"residual_layout": "misaligned"}),
    ((5, 130), {"layout": "sliced", "residual_layout": "expanded"}),
    ((8, 300), {"scale": 1e4}),
    ((5, 200), {"scale": 1e-4, "eps": 1e-5}),
    ((6, 130), {"dtype": "bfloat16", "weight_dtype": "float32"}),
    ((6, 130), {"dtype": "bfloat16", "weight_dtype": "float32", "casting": "llama"}),
    ((6, 130), {"dtype": "bfloat16", "weight_dtype": "float32", "casting": "t5"}),
    ((6, 130), {"dtype": "float16", "weight_dtype": "bfloat16", "offset": 1.0}),
    ((6, 130), {"weight_dtype": "bfloat16"}),
)


DEFINITION = Operator(
    name="fused_add_rms_norm",
    summary="(rms_norm(x + residual), x + residual) over the last dim, in one pass",
    make_inputs=make_inputs,
    reference=fused_add_rms_norm,
    cost=cost,
    public_arguments=public_arguments,
    differentiable=("x", "residual", "weight"),
    outputs=("y", "total"),
    workloads=grid(_EVERY_DTYPE, _ONCE),
    gpu_workloads=grid((*ON_A_GPU, ((4, 70_001), {"offset": 1.0, "casting": "llama"}))),
    sweeps=sweeps,
    targets=(to_reach(Mode.FORWARD, 97, 97, 95), to_reach(Mode.BACKWARD, 94, 88, 80)),
    ladder=ladder,
    workload_of=partial(workload_over_rows, "fused_add_rms_norm"),
)
