"""The speed of light: least bytes and operations over ceilings measured in the same run."""

import re
import time

import torch

from kernelyard.core.errors import unknown
from kernelyard.core.operator import Cost
from kernelyard.core.verdict import Floor, Record
from kernelyard.core.workload import DTYPES
from kernelyard.judge.timing import Call, interleaved

# By the vendors' datasheets: peak memory bandwidth in 1e9 bytes a second; matrix products in 1e12 operations a second
# for dense matrices, in full fp32 and in the 16-bit formats. The name decides, most telling part first.
DATASHEETS = (
    (r"H100.*PCIe", 2000.0, 51.0, 756.0),
    (r"H100 NVL", 3900.0, 60.0, 835.0),
    (r"H100", 3350.0, 67.0, 989.0),
    (r"H200", 4800.0, 67.0, 989.0),
    (r"B200", 8000.0, 75.0, 2250.0),
    (r"A100.*80GB", 2039.0, 19.5, 312.0),
    (r"A100", 1555.0, 19.5, 312.0),
    (r"T4", 320.0, 8.1, 65.0),
    (r"L40S", 864.0, 91.6, 362.0),
    (r"L4", 300.0, 30.3, 121.0),
    (r"MI300X", 5300.0, 163.4, 1307.0),
)
# A call may read or write what lies in the cache: on an H100 that holds 50 MB, small workloads beat the copy ceiling
# honestly. The impossible bound takes writes for free and leaves a tenth of slack on the datasheet's bandwidth.
SLACK = 0.9
GPU_COPY_BYTES = 1 << 30
CPU_COPY_BYTES = 64 << 20
# The warm copy that bounds a CPU's caches from above: small enough for any private L2 (1 MB and more since 2019).
CPU_CACHED_BYTES = 256 << 10


class Ceilings(Record):
    """What the device did when asked for nothing else."""

    copy_gbps: float
    """A large device-to-device copy, bytes read plus bytes written, cold, median."""
    cached_gbps: float | None
    """The same within the cache, best; only on a CPU, where caches cannot be flushed for certain."""
    tflops: float | None
    """A large matrix product in the dtype; None where no matrix product is in question."""
    datasheet_gbps: float | None


def datasheet_gbps(device_name: str) -> float | None:
    return next((gbps for pattern, gbps, *_ in DATASHEETS if _named(pattern, device_name)), None)


def datasheet_ceilings(device_name: str, dtype: str) -> Ceilings:
    """What the vendor promises, for floors of a device that is not here. Raises UsageError for an unknown one."""
    for pattern, gbps, full, half in DATASHEETS:
        if _named(pattern, device_name):
            tflops = full if dtype == "float32" else half
            return Ceilings(copy_gbps=gbps, cached_gbps=None, tflops=tflops, datasheet_gbps=gbps)
    raise unknown("GPU", device_name, [pattern.replace(".*", " ") for pattern, *_ in DATASHEETS])


def _named(pattern: str, device_name: str) -> bool:
    return re.search(rf"\b(?:{pattern})\b", device_name, re.IGNORECASE) is not None


def measure_ceilings(device: torch.device, dtype: str, *, matrix: bool) -> Ceilings:
    """Measure them now; about a second."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return Ceilings(
        copy_gbps=copy_gbps(device),
        cached_gbps=_cached_gbps() if device.type == "cpu" else None,
        tflops=_matrix_tflops(device, DTYPES[dtype]) if matrix else None,
        datasheet_gbps=datasheet_gbps(name),
    )


class Remembered:
    """What `measure_ceilings` said when it was asked first, until that is forgotten."""

    def __init__(self) -> None:
        self._known: dict[tuple[torch.device, str, bool], Ceilings] = {}

    def __call__(self, device: torch.device, dtype: str, *, matrix: bool) -> Ceilings:
        key = device, dtype, matrix
        if key not in self._known:
            self._known[key] = measure_ceilings(device, dtype, matrix=matrix)
        return self._known[key]

    def forget(self) -> None:
        """What was measured while something else ran is measured anew."""
        self._known.clear()


def copy_gbps(device: torch.device) -> float:
    """Copy bandwidth, cold, median: half the bytes are read and half are written."""
    size = CPU_COPY_BYTES if device.type == "cpu" else GPU_COPY_BYTES
    source = torch.ones(size // 4, dtype=torch.int32, device=device)
    target = torch.zeros_like(source)
    timing = interleaved({"copy": lambda: target.copy_(source)}, device, seconds=0.3)["copy"]
    return 2 * size / timing.p50_ms / 1e6


def _cached_gbps() -> float:
    """The best of many copies that stay in a private cache, over all threads."""
    threads = torch.get_num_threads()
    source = torch.ones(threads * CPU_CACHED_BYTES // 4, dtype=torch.int32)
    target = torch.zeros_like(source)
    best = min(_seconds(lambda: target.copy_(source)) for _ in range(300))
    return 2 * source.numel() * 4 / best / 1e9


def _matrix_tflops(device: torch.device, dtype: torch.dtype) -> float:
    """A square matrix product, 8192 wide on an accelerator and 1024 on a CPU, on random data (zeros run faster)."""
    size = 1024 if device.type == "cpu" else 8192
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    timing = interleaved({"product": lambda: left @ right}, device, seconds=0.3)["product"]
    return 2 * size**3 / timing.p20_ms / 1e9


def floor(cost: Cost, ceilings: Ceilings) -> Floor:
    """The least time of a workload, and the time below which a measurement is wrong."""
    memory_ms = cost.bytes / ceilings.copy_gbps / 1e6
    compute_ms = cost.operations / ceilings.tflops / 1e9 if cost.matrix and ceilings.tflops else 0.0
    top_gbps = ceilings.datasheet_gbps or max(ceilings.copy_gbps, ceilings.cached_gbps or 0.0)
    free_bytes = cost.write_bytes if ceilings.cached_gbps is None else 0
    return Floor(
        bytes=cost.bytes,
        operations=cost.operations,
        bound="compute" if compute_ms > memory_ms else "memory",
        floor_ms=max(memory_ms, compute_ms),
        copy_gbps=ceilings.copy_gbps,
        tflops=ceilings.tflops if cost.matrix else None,
        datasheet_gbps=ceilings.datasheet_gbps,
        impossible_ms=SLACK * (cost.bytes - free_bytes) / top_gbps / 1e6,
    )


def _seconds(call: Call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
