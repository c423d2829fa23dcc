"""What operators' definitions share: the cost of a mode, grids of cases, and the sweeps over rows."""

from typing import Any

from kernelyard.core.operator import Cost, Sweep, Target
from kernelyard.core.workload import DTYPES, Mode, Workload

ROW_OF_MILLIONS = 4_194_304

Cases = tuple[tuple[tuple[int, ...], dict[str, Any]], ...]
"""Shapes, each with its options; `dtype` among them names another than the grid's."""


def of_mode(forward: Cost, backward: Cost, mode: Mode) -> Cost:
    """One of the two, or both together."""
    if mode is Mode.FORWARD:
        return forward
    if mode is Mode.BACKWARD:
        return backward
    return Cost(
        forward.read_bytes + backward.read_bytes,
        forward.write_bytes + backward.write_bytes,
        forward.operations + backward.operations,
    )


def grid(every_dtype: Cases, once: Cases = ()) -> tuple[Workload, ...]:
    """Workloads of `every_dtype` in each dtype, then those of `once` in float32 unless they name another."""
    return tuple(
        [Workload.of(*shape, dtype=dtype, **options) for dtype in DTYPES for shape, options in every_dtype]
        + [Workload.of(*shape, **options) for shape, options in once]
    )


def elements(dtype: str, device_type: str) -> int:
    """Of a tensor that is timed: 512 MiB on a GPU, for 32 bits as for 16; 2^16 elements on a CPU."""
    if device_type == "cpu":
        return 2**16
    return 2**28 if DTYPES[dtype].itemsize == 2 else 2**27


def by_length(dtype: str, device_type: str, x_label: str = "row length") -> Sweep:
    """Row lengths at a constant size, that of `elements`."""
    lengths = (64, 256, 1024, 4096) if device_type == "cpu" else (1024, 4096, 16384, 65536, 262144)
    whole = elements(dtype, device_type)
    points = tuple((n, Workload.of(whole // n, n, dtype=dtype)) for n in lengths)
    return Sweep(x_name="N", x_label=x_label, points=points)


def to_reach(mode: Mode, short: float, long: float, longest: float | None = None) -> Target:
    """Percents to 16384, 65536 and 262144 columns of `by_length`."""
    steps = ((16384, short), (65536, long))
    return Target("N", mode, steps if longest is None else (*steps, (262144, longest)))


MILLIONS_TO_REACH = Target("rows", Mode.FORWARD, ((16, 85),))
"""Of `of_millions`."""


def of_millions(dtype: str) -> Sweep:
    """Rows that no multiprocessor holds, and too few of them to fill a chip one by one."""
    points = ((16, Workload.of(16, ROW_OF_MILLIONS, dtype=dtype)),)
    return Sweep(x_name="rows", x_label=f"rows of {ROW_OF_MILLIONS}", points=points, modes=(Mode.FORWARD,))


def small(dtype: str, **options: Any) -> Sweep:
    """Inference a few tokens at a time, where the host's time counts."""
    points = tuple((m, Workload.of(m, 4096, dtype=dtype, **options)) for m in (1, 8, 64, 512))
    return Sweep(x_name="M", x_label="rows of 4096", points=points, host=True)


def ladder(device_type: str) -> Workload:
    """64 MiB of bf16 to a tensor on a GPU; small enough for Triton's interpreter on a CPU."""
    return Workload.of(64, 1000) if device_type == "cpu" else Workload.of(8192, 4096, dtype="bfloat16")


# Powers of two and their neighbours stand at the ends of every launch setting's range.
_SHORT = (1024, 2047, 2048, 4096, 4099, 8192, 8200, 16384, 16385, 32768, 32771)
_LONG = (65536, 65541, 131072, 131079, 200_003, 262144, 262145, 300_000)
GPU_LENGTHS = _SHORT + _LONG
