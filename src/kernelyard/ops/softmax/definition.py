"""Softmax: what it takes, what it costs, and the cases it is proved and timed on."""

from typing import Any

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Cost, Operator, Sweep
from kernelyard.core.workload import Mode, Workload
from kernelyard.ops.cases import (
    GPU_LENGTHS,
    MILLIONS_TO_REACH,
    Cases,
    by_length,
    grid,
    ladder,
    of_millions,
    of_mode,
    small,
    to_reach,
)
from kernelyard.ops.inputs import generator_of, laid_out
from kernelyard.ops.softmax.reference import softmax


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    """`x` of the workload's shape and layout, normally distributed, and `dim`.

    Options: `dim`; `layout` (contiguous, transposed, sliced, expanded, misaligned); `scale` and `shift` of
    the values; `masked=True` for minus infinity in about a third of the elements, never in a whole row.
    """
    dim = workload.option("dim", -1)
    generator = generator_of(workload, device)
    shape, layout = workload.shape, workload.option("layout", "contiguous")
    if layout == "expanded":
        shape = (1, *shape[1:])
    x = torch.randn(shape, dtype=workload.torch_dtype, device=device, generator=generator)
    x.mul_(workload.option("scale", 1)).add_(workload.option("shift", 0))
    if workload.option("masked", False):
        mask = torch.rand(shape, device=device, generator=generator) < 1 / 3
        mask.select(dim, 0).fill_(False)
        x.masked_fill_(mask, float("-inf"))
    return {"x": laid_out(x, layout, workload.shape), "dim": dim}


def cost(workload: Workload, mode: Mode) -> Cost:
    """Forward reads x and writes y; backward reads dy and y and writes dx.

    Operations per element, an exponential and a division counted as one each: forward compare, subtract,
    exponential, add, divide; backward multiply-add (2), subtract, multiply.
    """
    elements = torch.Size(workload.shape).numel()
    whole = elements * workload.torch_dtype.itemsize
    repeated = workload.shape[0] if workload.option("layout", None) == "expanded" else 1
    forward = Cost(whole // max(repeated, 1), whole, 5 * elements)
    backward = Cost(2 * whole, whole, 4 * elements)
    return of_mode(forward, backward, mode)


def workload_of(shape: tuple[int, ...], dtype: str) -> Workload:
    """Softmax over the last dim of any shape; raises UsageError for a negative size."""
    if any(size < 0 for size in shape):
        raise UsageError(f"softmax takes a shape of sizes 0 or more, not {'x'.join(map(str, shape))}")
    return Workload.of(*shape, dtype=dtype)


def sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    """Row lengths at a constant size: 512 MiB on a GPU, 2^16 elements on a CPU.

    On a GPU also 16 rows of 4 million, which no multiprocessor holds, and small inputs, where the host's time counts.
    """
    lengths = by_length(dtype, device_type)
    return (lengths,) if device_type == "cpu" else (lengths, of_millions(dtype), small(dtype))


_EVERY_DTYPE: Cases = (
    ((4, 1), {}),
    ((5, 3), {}),
    ((7, 96), {}),
    ((3, 640), {}),
    ((3, 1000), {}),
    ((2, 1023), {}),
    ((2, 1024), {}),
    ((2, 1025), {}),
    ((1, 4099), {}),
    ((3, 17, 5), {"dim": 1}),
    ((70, 33), {"dim": 0}),
    ((4, 37, 64), {"dim": 1}),
    ((64, 48), {"layout": "transposed"}),
    ((6, 100), {"layout": "sliced"}),
    ((4, 129), {"layout": "misaligned"}),
    ((16, 257), {"scale": 64}),
    ((4, 200), {"masked": True, "scale": 8, "shift": -1000}),
)
_ONCE: Cases = (
    ((), {}),
    ((13,), {}),
    ((0, 16), {}),
    ((4, 0), {}),
    ((0, 5, 3), {"dim": 1}),
    ((2, 3, 4, 5), {"dim": 1}),
    ((2, 3, 4, 5), {"dim": -2}),
    ((3, 5, 40), {"layout": "sliced"}),
    ((5, 130), {"layout": "expanded"}),
    ((5, 40), {"layout": "transposed", "dim": 0}),
    ((9, 33), {"layout": "misaligned", "dim": 0}),
    ((8, 300), {"scale": 8, "shift": 1000}),
    ((50, 60), {"scale": 64, "dim": 0}),
    ((30, 20), {"masked": True, "dim": 0, "shift": -200}),
)
_GPU: Cases = (
    *[((5, n), {}) for n in GPU_LENGTHS],
    ((300, 8192), {}),
    ((3, 16384), {"layout": "misaligned"}),
    ((3, 40_000), {"layout": "sliced"}),
    ((64, 1000, 24), {"dim": 1}),
    ((3, 9001, 40), {"dim": 1}),
    ((2, 40_000, 65), {"dim": 1}),
    ((2, 4_194_304), {}),
    ((16, 4_194_304), {}),
    ((3, 4_000_037), {}),
    ((1_000_000, 3), {}),
    ((1_000_000, 16), {}),
    ((1_000_000, 100), {}),
    ((1_000_000, 3), {"dim": 0}),
    ((4, 70_000), {"scale": 8, "shift": 1000}),
    ((4, 70_001), {"masked": True, "shift": -200}),
)


DEFINITION = Operator(
    name="softmax",
    summary="exp(x) over its sum along one dim, any shape and dim",
    make_inputs=make_inputs,
    reference=softmax,
    cost=cost,
    differentiable=("x",),
    workloads=grid(_EVERY_DTYPE, _ONCE),
    gpu_workloads=grid(_GPU),
    sweeps=sweeps,
    targets=(to_reach(Mode.FORWARD, 97, 97, 95), to_reach(Mode.BACKWARD, 97, 97, 93), MILLIONS_TO_REACH),
    ladder=ladder,
    workload_of=workload_of,
)
