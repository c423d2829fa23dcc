"""RMS norm: what it takes, what it costs, and the cases it is proved and timed on."""

from functools import partial
from typing import Any

import torch

from kernelyard.core.operator import Cost, Operator, Sweep, Target
from kernelyard.core.workload import Mode, Workload
from kernelyard.ops.cases import MILLIONS_TO_REACH, Cases, by_length, grid, ladder, of_millions, small, to_reach
from kernelyard.ops.inputs import generator_of
from kernelyard.ops.norm_cases import (
    ON_A_GPU,
    OTHER_DIMS_ON_A_GPU,
    norm_cost,
    normalized_shape,
    parameter,
    values,
    workload_over_rows,
)
from kernelyard.ops.rms_norm.reference import rms_norm


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    """`x`, `weight` around 1 - offset, `eps`, `offset`, `casting`, and `count` dims that end at `dim`.

    Options: those and `layout` (contiguous, transposed, sliced, expanded, misaligned), `scale` and `shift` of x;
    `weight=False`; `weight_dtype`.
    """
    generator = generator_of(workload, device)
    offset = workload.option("offset", 0.0)
    x = values(workload, device, generator)
    weight = parameter(workload, device, generator, 1 - offset) if workload.option("weight", True) else None
    return {
        "x": x,
        "weight": weight,
        "eps": workload.option("eps", 1e-6),
        "offset": offset,
        "casting": workload.option("casting", "gemma"),
        "count": workload.option("count", 1),
        "dim": workload.option("dim", -1),
    }


def cost(workload: Workload, mode: Mode) -> Cost:
    """The reciprocal root mean square of every row is written and read again.

    Operations per element: forward multiply-add (2) and two of scaling; backward x_hat, g, a sum (2), dx (3) and
    dweight (2).
    """
    parameters = int(workload.option("weight", True))
    return norm_cost(workload, mode, parameters=parameters, statistics=1, operations=(4, 9))


def public_arguments(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of `kernelyard.ops.rms_norm`, for a backend's."""
    positional = (x, normalized_shape(x, count, dim), weight, eps)
    return positional, {"offset": offset, "casting": casting, "dim": dim}


def sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    """Row lengths; on a GPU also rows of millions, the channels of images and the host's time for few rows."""
    lengths = by_length(dtype, device_type)
    if device_type == "cpu":
        return (lengths,)
    images = Sweep(
        x_name="channels",
        x_label="channels of 112 images of 512 x 512",
        points=((64, Workload.of(112, 64, 512, 512, dtype=dtype, dim=1)),),
        modes=(Mode.FORWARD,),
    )
    return lengths, of_millions(dtype), images, small(dtype)


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
    ((0, 5, 3), {"dim": 1}),
    ((40, 30), {"dim": 0}),
    ((2, 3, 4, 5), {"dim": 2, "count": 2}),
    ((2, 33, 70), {"dim": -2, "weight": False}),
    ((64, 48), {"layout": "transposed"}),
    ((3, 5, 40), {"layout": "sliced", "count": 2}),
    ((5, 130), {"layout": "expanded"}),
    ((9, 33), {"layout": "misaligned", "dim": 0}),
    ((8, 300), {"scale": 1e4}),
    ((5, 200), {"scale": 1e-4, "eps": 1e-5}),
    ((6, 130), {"dtype": "bfloat16", "weight_dtype": "float32"}),
    ((6, 130), {"dtype": "bfloat16", "weight_dtype": "float32", "casting": "llama"}),
    ((6, 130), {"dtype": "bfloat16", "weight_dtype": "float32", "casting": "t5"}),
    ((6, 130), {"dtype": "float16", "weight_dtype": "bfloat16", "offset": 1.0}),
    ((6, 130), {"dtype": "float16", "casting": "t5", "weight": False}),
    ((6, 130), {"weight_dtype": "bfloat16"}),
    ((3, 24, 10), {"dim": 1, "dtype": "bfloat16", "offset": 1.0, "weight_dtype": "float32"}),
)


DEFINITION = Operator(
    name="rms_norm",
    summary="x / root mean square * (offset + weight), over any neighbouring dims; Llama's, Gemma's and T5's casts",
    make_inputs=make_inputs,
    reference=rms_norm,
    cost=cost,
    public_arguments=public_arguments,
    differentiable=("x", "weight"),
    workloads=grid(_EVERY_DTYPE, _ONCE),
    gpu_workloads=grid((*ON_A_GPU, *OTHER_DIMS_ON_A_GPU, ((4, 70_001), {"offset": 1.0, "casting": "llama"}))),
    sweeps=sweeps,
    targets=(
        to_reach(Mode.FORWARD, 97, 97, 95),
        to_reach(Mode.BACKWARD, 94, 88, 80),
        MILLIONS_TO_REACH,
        Target("channels", Mode.FORWARD, ((64, 92),)),
    ),
    ladder=ladder,
    workload_of=partial(workload_over_rows, "rms_norm"),
)
