"""Layer norm: what it takes, what it costs, and the cases it is proved and timed on."""

from functools import partial
from typing import Any

import torch

from kernelyard.core.operator import Cost, Operator, Sweep
from kernelyard.core.workload import Mode, Workload
from kernelyard.ops.cases import MILLIONS_TO_REACH, Cases, by_length, grid, ladder, of_millions, small, to_reach
from kernelyard.ops.inputs import generator_of
from kernelyard.ops.layer_norm.reference import layer_norm
from kernelyard.ops.norm_cases import (
    ON_A_GPU,
    OTHER_DIMS_ON_A_GPU,
    norm_cost,
    normalised_shape,
    normalized_shape,
    parameter,
    values,
    workload_over_rows,
)


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    """`x`, `weight` around 1, `bias` around 0, `eps`, and `count` dims that end at `dim`.

    Options: `dim`; `count`; `eps`; `layout` (contiguous, transposed, sliced, expanded, misaligned), `scale` and
    `shift` of x; `weight=False`, `bias=False`; `weight_dtype` of both.
    """
    generator = generator_of(workload, device)
    x = values(workload, device, generator)
    affine = workload.option("weight", True)
    return {
        "x": x,
        "weight": parameter(workload, device, generator, 1) if affine else None,
        "bias": parameter(workload, device, generator, 0) if affine and workload.option("bias", True) else None,
        "eps": workload.option("eps", 1e-5),
        "count": workload.option("count", 1),
        "dim": workload.option("dim", -1),
    }


def cost(workload: Workload, mode: Mode) -> Cost:
    """Mean and reciprocal standard deviation of every row are written and read again.

    Operations per element: forward sum, subtract, multiply-add (2), and three of scaling; backward x_hat (2), g,
    two sums (3), dx (4), dweight (2) and dbias.
    """
    affine = workload.option("weight", True)
    parameters = int(affine) + int(affine and workload.option("bias", True))
    return norm_cost(workload, mode, parameters=parameters, statistics=2, operations=(7, 13))


def public_arguments(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of `kernelyard.ops.layer_norm`, for a backend's."""
    return (x, normalized_shape(x, count, dim), weight, bias, eps), {"dim": dim}


def sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    """Row lengths; on a GPU also rows of millions and the host's time for few rows."""
    lengths = by_length(dtype, device_type)
    return (lengths,) if device_type == "cpu" else (lengths, of_millions(dtype), small(dtype))


_EVERY_DTYPE: Cases = (
    ((5, 96), {}),
    ((3, 1000), {}),
    ((4, 1), {}),
    ((37, 3), {}),
    ((2, 1023), {}),
    ((1, 4099), {}),
    ((3, 17, 5), {"dim": 1}),
    ((2, 3, 4, 10), {"count": 2}),
    ((6, 100), {"layout": "sliced"}),
    ((4, 129), {"layout": "misaligned"}),
    ((16, 257), {"shift": 100, "scale": 3}),
    ((7, 64), {"weight": False}),
    ((7, 65), {"bias": False}),
)
_ONCE: Cases = (
    ((13,), {}),
    ((0, 16), {}),
    ((4, 0), {}),
    ((0, 5, 3), {"dim": 1}),
    ((40, 30), {"dim": 0}),
    ((2, 3, 4, 5), {"dim": 2, "count": 2}),
    ((2, 33, 70), {"dim": -2, "weight": False}),
    ((64, 48), {"layout": "transposed"}),
    ((3, 5, 40), {"layout": "sliced", "count": 2}),
    ((5, 130), {"layout": "expanded"}),
    ((9, 33), {"layout": "misaligned", "dim": 0}),
    ((8, 300), {"shift": 10_000}),
    ((5, 200), {"scale": 1e-4, "eps": 1e-6}),
    ((6, 130), {"dtype": "bfloat16", "weight_dtype": "float32"}),
    ((6, 130), {"dtype": "float16", "weight_dtype": "float32", "bias": False}),
    ((6, 130), {"weight_dtype": "bfloat16"}),
    ((3, 24, 10), {"dim": 1, "dtype": "bfloat16", "weight_dtype": "float32"}),
)


def _bias_gradient_overflows(workload: Workload) -> bool:
    """A proof's gradients are 0.5 on average, and a bias's gradient adds one up for each row: fp16 ends at 65504."""
    rows = torch.Size(workload.shape).numel() // max(torch.Size(normalised_shape(workload)).numel(), 1)
    return workload.torch_dtype is torch.float16 and rows / 2 > torch.finfo(torch.float16).max


DEFINITION = Operator(
    name="layer_norm",
    summary="(x - mean) / standard deviation * weight + bias, over any neighbouring dims",
    make_inputs=make_inputs,
    reference=layer_norm,
    cost=cost,
    public_arguments=public_arguments,
    differentiable=("x", "weight", "bias"),
    workloads=grid(_EVERY_DTYPE, _ONCE),
    gpu_workloads=tuple(
        workload for workload in grid((*ON_A_GPU, *OTHER_DIMS_ON_A_GPU)) if not _bias_gradient_overflows(workload)
    ),
    sweeps=sweeps,
    targets=(to_reach(Mode.FORWARD, 97, 97, 95), to_reach(Mode.BACKWARD, 94, 88, 80), MILLIONS_TO_REACH),
    ladder=ladder,
    workload_of=partial(workload_over_rows, "layer_norm"),
)
