"""What the norms' definitions share: values and parameters from a seed, the bytes of both passes, long rows."""

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Cost
from kernelyard.core.workload import DTYPES, Mode, Workload
from kernelyard.ops.cases import GPU_LENGTHS, Cases, of_mode
from kernelyard.ops.inputs import laid_out


def values(workload: Workload, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    """Normally distributed, times the option `scale` plus `shift`, in the option `layout`."""
    shape, layout = workload.shape, workload.option("layout", "contiguous")
    if layout == "expanded":
        shape = (1, *shape[1:])
    x = torch.randn(shape, dtype=workload.torch_dtype, device=device, generator=generator)
    x.mul_(workload.option("scale", 1)).add_(workload.option("shift", 0))
    return laid_out(x, layout, workload.shape)


def parameter(workload: Workload, device: torch.device, generator: torch.Generator, mean: float) -> torch.Tensor:
    """A weight or bias over the `count` dims that end at `dim`, of `weight_dtype` where that is another than x's."""
    dtype = DTYPES[workload.option("weight_dtype", workload.dtype)]
    noise = torch.randn(normalised_shape(workload), device=device, generator=generator)
    return noise.mul_(0.5).add_(mean).to(dtype)


def normalised_shape(workload: Workload) -> tuple[int, ...]:
    end = workload.option("dim", -1) % len(workload.shape) + 1
    return workload.shape[end - workload.option("count", 1) : end]


def norm_cost(workload: Workload, mode: Mode, *, parameters: int, statistics: int, operations: tuple[int, int]) -> Cost:
    """Forward reads x and the parameters and writes y and the statistics; backward reads dy, x, weight and
    statistics and writes dx and the parameters' gradients. `operations` are per element, forward and backward.

    `parameters` and `statistics` are how many there are; a statistic is a float32 for each row.
    """
    elements = torch.Size(workload.shape).numel()
    length = torch.Size(normalised_shape(workload)).numel()
    whole = elements * workload.torch_dtype.itemsize
    weight_dtype = DTYPES[workload.option("weight_dtype", workload.dtype)]
    to_weight = workload.option("casting", "gemma") == "t5" and parameters
    result = elements * (weight_dtype if to_weight else workload.torch_dtype).itemsize
    of_one = length * weight_dtype.itemsize
    of_rows = 4 * statistics * (elements // max(length, 1))
    repeated = workload.shape[0] if workload.option("layout", None) == "expanded" else 1
    read = whole // max(repeated, 1)
    forward = Cost(read + parameters * of_one, result + of_rows, operations[0] * elements)
    backward = Cost(
        result + read + min(parameters, 1) * of_one + of_rows, whole + parameters * of_one, operations[1] * elements
    )
    return of_mode(forward, backward, mode)


def workload_over_rows(name: str, shape: tuple[int, ...], dtype: str) -> Workload:
    """The norm `name` over the last dim of a shape; raises UsageError for one without dims or of a negative size."""
    if not shape or any(size < 0 for size in shape):
        raise UsageError(
            f"{name} takes a shape of at least one dim and sizes 0 or more, not {'x'.join(map(str, shape)) or 'none'}"
        )
    return Workload.of(*shape, dtype=dtype)


def normalized_shape(x: torch.Tensor, count: int, dim: int) -> torch.Size:
    """The sizes of the `count` dims of `x` that end at `dim`, which is how the public functions name them."""
    end = dim % x.ndim + 1
    return x.shape[end - count : end]


ON_A_GPU: Cases = (
    *[((5, n), {}) for n in GPU_LENGTHS],
    ((300, 8192), {}),
    ((1000, 16384), {}),
    ((700, 40_000), {}),
    ((3, 16384), {"layout": "misaligned"}),
    ((3, 40_000), {"layout": "sliced"}),
    ((2, 4_194_304), {}),
    ((16, 4_194_304), {}),
    ((3, 4_000_037), {}),
    ((1_000_000, 3), {}),
    ((1_000_000, 16), {}),
    ((1_000_000, 100), {}),
    ((4, 70_000), {"shift": 1000}),
    ((4, 70_001), {"weight": False}),
)
OTHER_DIMS_ON_A_GPU: Cases = (
    ((64, 1000, 24), {"dim": 1}),
    ((3, 9001, 40), {"dim": 1}),
    ((2, 64, 300, 300), {"dim": 1}),
    ((1_000_000, 3), {"dim": 0}),
)
