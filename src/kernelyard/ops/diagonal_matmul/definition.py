"""diag(a) @ B: what it takes, what it costs, and the cases it is proved and timed on."""

from typing import Any

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Cost, Operator, Sweep
from kernelyard.core.workload import DTYPES, Mode, Workload
from kernelyard.ops.cases import Cases, by_length, grid, ladder, of_mode, small, to_reach
from kernelyard.ops.diagonal_matmul.reference import diagonal_matmul
from kernelyard.ops.inputs import generator_of, laid_out


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    """`a` (N,) and `B` (N, M) of the workload's shape (N, M), normally distributed.

    Options: `layout` of B (contiguous, transposed, sliced, expanded, misaligned); `shift` of B's values; `a_dtype`
    where it is not B's.
    """
    generator = generator_of(workload, device)
    shape, layout = workload.shape, workload.option("layout", "contiguous")
    a_dtype = DTYPES[workload.option("a_dtype", workload.dtype)]
    a = torch.randn(shape[0], dtype=a_dtype, device=device, generator=generator)
    rows = 1 if layout == "expanded" else shape[0]
    matrix = torch.randn(rows, shape[1], dtype=workload.torch_dtype, device=device, generator=generator)
    matrix.add_(workload.option("shift", 0))
    return {"a": a, "B": laid_out(matrix, layout, shape)}


def cost(workload: Workload, mode: Mode) -> Cost:
    """Forward reads a and B and writes y; backward reads a, dy and B and writes da and dB.

    Operations per element: forward a multiply; backward a multiply-add (2) and a multiply.
    """
    rows, columns = workload.shape
    whole = rows * columns * workload.torch_dtype.itemsize
    vector = rows * DTYPES[workload.option("a_dtype", workload.dtype)].itemsize
    read = whole // max(rows, 1) if workload.option("layout", None) == "expanded" else whole
    forward = Cost(vector + read, whole, rows * columns)
    backward = Cost(vector + whole + read, vector + whole, 3 * rows * columns)
    return of_mode(forward, backward, mode)


def workload_of(shape: tuple[int, ...], dtype: str) -> Workload:
    """The shape of B; raises UsageError for one that is not two sizes of 0 or more."""
    if len(shape) != 2 or min(shape) < 0:
        raise UsageError(f"diagonal_matmul takes B's shape NxM, not {'x'.join(map(str, shape)) or 'a scalar'}")
    return Workload.of(*shape, dtype=dtype)


def sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    """Row lengths of B at a constant size, 512 MiB on a GPU, 2^16 elements on a CPU; few rows for the host's time."""
    return by_length(dtype, device_type), small(dtype)


_EVERY_DTYPE: Cases = (
    ((5, 96), {}),
    ((300, 1), {}),
    ((67, 3), {}),
    ((3, 1023), {}),
    ((1, 4099), {}),
    ((7, 2048), {}),
    ((64, 48), {"layout": "transposed"}),
    ((6, 200), {"layout": "sliced"}),
    ((5, 130), {"layout": "expanded"}),
    ((4, 257), {"layout": "misaligned"}),
    ((6, 300), {"shift": 100}),
)
_ONCE: Cases = (
    ((0, 16), {}),
    ((4, 0), {}),
    ((2, 20_000), {}),
    ((9, 264), {"a_dtype": "bfloat16"}),
    ((9, 264), {"dtype": "bfloat16", "a_dtype": "float32"}),
    ((9, 33), {"dtype": "bfloat16", "a_dtype": "float16"}),
)
_GPU: Cases = (
    *[((5, n), {}) for n in (1024, 4096, 8200, 16384, 16385, 32768, 65541, 200_003, 262144)],
    ((3, 40_000), {"layout": "sliced"}),
    ((3, 16384), {"layout": "misaligned"}),
    ((2, 4_194_304), {}),
    ((1, 20_000_011), {}),
    ((1_000_000, 1), {}),
    ((1_000_000, 3), {}),
    ((1_000_000, 16), {}),
    ((300_000, 100), {}),
    ((20_000, 1000), {"layout": "expanded"}),
    ((20_000, 1024), {"a_dtype": "float32"}),
)


DEFINITION = Operator(
    name="diagonal_matmul",
    summary="diag(a) @ B: each row of a matrix times its own factor",
    make_inputs=make_inputs,
    reference=diagonal_matmul,
    cost=cost,
    differentiable=("a", "B"),
    workloads=grid(_EVERY_DTYPE, _ONCE),
    gpu_workloads=grid(_GPU),
    sweeps=sweeps,
    targets=(to_reach(Mode.FORWARD, 97, 97, 97), to_reach(Mode.BACKWARD, 95, 95, 95)),
    ladder=ladder,
    workload_of=workload_of,
)
