"""A linear layer and the sum of its outputs: what it takes, what it costs, and the cases it is proved and timed on."""

from typing import Any

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Cost, Operator, Sweep, Target
from kernelyard.core.workload import DTYPES, Mode, Workload
from kernelyard.ops.cases import Cases, grid, of_mode, small
from kernelyard.ops.fused_linear_rowsum.reference import fused_linear_rowsum
from kernelyard.ops.inputs import generator_of, laid_out


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    """`x` (..., I) of the workload's shape, `weight` (O, I) of variance 1 / I and `bias` (O,), normally distributed.

    Options: `out_features`, O, which is the first size of x without it; `bias=False`; `layout` of x (contiguous,
    transposed, sliced, expanded, misaligned) and `weight_layout`; `shift` of the values of x; `weight_dtype` where
    it is not x's, of the bias too.
    """
    generator = generator_of(workload, device)
    shape, layout = workload.shape, workload.option("layout", "contiguous")
    outputs, inputs = _outputs(workload), shape[-1]
    dtype = DTYPES[workload.option("weight_dtype", workload.dtype)]
    x_shape = (1, *shape[1:]) if layout == "expanded" else shape
    x = torch.randn(x_shape, dtype=workload.torch_dtype, device=device, generator=generator)
    x.add_(workload.option("shift", 0))
    weight = torch.randn(outputs, inputs, dtype=dtype, device=device, generator=generator)
    weight.mul_(max(inputs, 1) ** -0.5)
    bias = torch.randn(outputs, dtype=dtype, device=device, generator=generator)
    return {
        "x": laid_out(x, layout, shape),
        "weight": laid_out(weight, workload.option("weight_layout", "contiguous"), (outputs, inputs)),
        "bias": bias if workload.option("bias", True) else None,
    }


def _outputs(workload: Workload) -> int:
    return workload.option("out_features", workload.shape[0])


def cost(workload: Workload, mode: Mode) -> Cost:
    """Forward reads x, weight and bias and writes y; backward reads dy and x and writes dx, dweight and dbias.

    Operations: an addition for each element of the weight and a multiply-add (2) for each of x; backward a
    multiply-add and a multiply for each element of x. The definition itself would take 2 B O I.
    """
    inputs, outputs = workload.shape[-1], _outputs(workload)
    rows = torch.Size(workload.shape[:-1]).numel()
    size, weight_size = workload.torch_dtype.itemsize, DTYPES[workload.option("weight_dtype", workload.dtype)].itemsize
    repeated = workload.shape[0] if workload.option("layout", None) == "expanded" else 1
    x_bytes = rows * inputs * size // max(repeated, 1)
    weight_bytes = (outputs * inputs + (outputs if workload.option("bias", True) else 0)) * weight_size
    forward = Cost(x_bytes + weight_bytes, rows * size, (outputs + 2 * rows) * inputs)
    backward = Cost(x_bytes + rows * size, rows * inputs * size + weight_bytes, 3 * rows * inputs)
    return of_mode(forward, backward, mode)


def workload_of(shape: tuple[int, ...], dtype: str) -> Workload:
    """The shape of x, with as many outputs as its first size; raises UsageError for a scalar or a negative size."""
    if not shape or any(size < 0 for size in shape):
        raise UsageError(f"fused_linear_rowsum takes x's shape ...xI, not {'x'.join(map(str, shape)) or 'a scalar'}")
    return Workload.of(*shape, dtype=dtype)


def sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    """As many rows as outputs, of 4096 and of 8192 inputs (64 and 128 on a CPU); few rows for the host's time."""
    sizes: tuple[int, ...] = (16, 64, 256)
    widths = (64, 128)
    if device_type != "cpu":
        sizes, widths = (1024, 2048, 4096, 8192, 16384), (4096, 8192)
    by_width = tuple(
        Sweep(
            x_name=name,
            x_label=f"rows of x and of the weight, {width} inputs",
            points=tuple((n, Workload.of(n, width, dtype=dtype)) for n in sizes),
        )
        for name, width in zip(("B=O", "B=O wide"), widths, strict=True)
    )
    return (*by_width, small(dtype, out_features=4096))


def ladder(device_type: str) -> Workload:
    """Two matrices of 64 MiB of bf16 on a GPU; small enough for Triton's interpreter on a CPU."""
    return Workload.of(64, 256) if device_type == "cpu" else Workload.of(8192, 4096, dtype="bfloat16")


_EVERY_DTYPE: Cases = (
    ((7, 96), {}),
    ((1, 1000), {"out_features": 33}),
    ((40, 64), {"out_features": 1}),
    ((9, 257), {"out_features": 70}),
    ((3, 5, 40), {"out_features": 12, "bias": False}),
    ((16, 64), {"out_features": 5, "layout": "transposed"}),
    ((6, 200), {"out_features": 9, "layout": "sliced"}),
    ((5, 130), {"out_features": 4, "layout": "expanded"}),
    ((8, 96), {"out_features": 30, "layout": "misaligned"}),
    ((8, 64), {"out_features": 24, "shift": 10}),
)
_ONCE: Cases = (
    ((13,), {"out_features": 5}),
    ((0, 16), {"out_features": 3}),
    ((0, 3, 16), {"out_features": 3}),
    ((4, 0), {"out_features": 3}),
    ((4, 16), {"out_features": 0}),
    ((9, 1), {"out_features": 40}),
    ((70, 600), {"out_features": 150}),
    ((6, 128), {"out_features": 8, "weight_layout": "transposed"}),
    ((6, 128), {"out_features": 8, "weight_layout": "misaligned"}),
    ((6, 128), {"out_features": 8, "weight_layout": "sliced"}),
    ((6, 128), {"out_features": 8, "weight_dtype": "bfloat16"}),
    ((6, 128), {"out_features": 8, "dtype": "bfloat16", "weight_dtype": "float32"}),
    ((6, 33), {"out_features": 8, "dtype": "bfloat16", "weight_dtype": "float16"}),
)
_GPU: Cases = (
    *[((b, n), {"out_features": o}) for b, o, n in ((1024, 1024, 4096), (3000, 5000, 8192), (1, 4096, 4096))],
    ((5000, 1000), {"out_features": 1}),
    ((4096, 3000), {"out_features": 777}),
    ((100, 40_000), {"out_features": 50}),
    ((20, 300_000), {"out_features": 30}),
    ((1000, 4095), {"out_features": 1001}),
    ((100_000, 64), {"out_features": 3000}),
    ((100_000, 3), {"out_features": 1000}),
    ((3, 700, 512), {"out_features": 2048, "bias": False}),
    ((600, 4096), {"out_features": 600, "layout": "sliced"}),
    ((600, 4096), {"out_features": 600, "layout": "expanded"}),
    ((600, 4096), {"out_features": 600, "layout": "misaligned"}),
    ((600, 4096), {"out_features": 600, "weight_dtype": "float32"}),
    ((600, 2048), {"out_features": 600, "shift": 10}),
)


DEFINITION = Operator(
    name="fused_linear_rowsum",
    summary="(x @ weight.T + bias).sum(-1) through the column sum of the weight",
    make_inputs=make_inputs,
    reference=fused_linear_rowsum,
    cost=cost,
    differentiable=("x", "weight", "bias"),
    workloads=grid(_EVERY_DTYPE, _ONCE),
    gpu_workloads=grid(_GPU),
    sweeps=sweeps,
    targets=tuple(
        Target(x_name, mode, ((16384, 90),)) for x_name in ("B=O", "B=O wide") for mode in (Mode.FORWARD, Mode.BACKWARD)
    ),
    ladder=ladder,
    workload_of=workload_of,
)
