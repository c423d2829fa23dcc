"""What fused_linear_rowsum's forward could take at best: both matrices read, and one meeting of all multiprocessors.

    python benchmarks/two_passes.py [--seconds 0.3] [--device cuda]

For each of its shapes, interleaved and with a cold L2, in percent of `copy_` of the operator's least bytes: a kernel
that reads weight and x and adds nothing up (`read`, in the best of three shapes); the same with a meeting of all CTAs
between the two, after which each reads the column sums, while x is on its way (`meet`); and the operator as it is. The
sums are there from the start: no column is added up, no row multiplied, nothing written. Below, in us, what a launch
that does nothing takes, and one that only meets and reads as many sums.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from kernelyard import ops
from kernelyard.judge.timing import interleaved
from kernelyard.kernels.launch import Launcher
from kernelyard.kernels.support import TYPES
from kernelyard.kernels.zeroed import zeroed

SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 512
# CTAs a multiprocessor, and how many vectors of 16 bytes a thread has on their way: 200 KB or half of it.
RINGS = {"1x25": (1, 25), "1x12": (1, 12), "2x12": (2, 12)}
SHAPES = [(torch.bfloat16, 4096), (torch.float32, 4096), (torch.bfloat16, 8192), (torch.float32, 8192)]
ROWS = (1024, 2048, 4096, 8192, 16384)

Call = Callable[[], object]


def launcher(
    kernel: str, dtype: torch.dtype, device: torch.device, *, stages: int = 1, meets: bool = False
) -> Launcher:
    defines = (
        ("TYPE", TYPES[dtype]),
        ("VEC", 16 // dtype.itemsize),
        ("THREADS", THREADS),
        ("STAGES", stages),
        ("MEET", int(meets)),
    )
    return Launcher(
        f"two_passes.{kernel}", SOURCE, kernel, defines, device=device, threads=THREADS,
        shared_bytes=stages * THREADS * 16,
    )  # fmt: skip


def both_read(
    weight: torch.Tensor, x: torch.Tensor, sums: torch.Tensor, ctas: int, stages: int, *, meets: bool
) -> Call:
    device = x.device
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    kernel = launcher("two_passes", x.dtype, device, stages=stages, meets=meets)
    launch = kernel.bind(ctas * processors, 5, *(part.nbytes // 16 for part in (weight, x, sums)))
    out = torch.zeros(1, device=device)

    def call() -> None:
        count = zeroed(1, device).data_ptr() if meets else 0
        launch(weight.data_ptr(), x.data_ptr(), sums.data_ptr(), count, out.data_ptr())

    return call


def calls_on(dtype: torch.dtype, width: int, rows: int, device: torch.device) -> dict[str, Call]:
    weight, x = (torch.randn(rows, width, device=device).to(dtype) for _ in range(2))
    bias, sums = torch.randn(rows, device=device).to(dtype), torch.zeros(width, device=device)
    least = weight.nbytes + x.nbytes + bias.nbytes + rows * dtype.itemsize
    source = torch.ones(least // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    calls: dict[str, Call] = {
        "copy": lambda: target.copy_(source),
        "operator": lambda: ops.fused_linear_rowsum(x, weight, bias),
    }
    for name, (ctas, stages) in RINGS.items():
        for kind, meets in (("read", False), ("meet", True)):
            calls[f"{kind} {name}"] = both_read(weight, x, sums, ctas, stages, meets=meets)
    return calls


def launches_alone(device: torch.device, seconds: float) -> str:
    out = torch.zeros(1, device=device)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    empty = launcher("nothing", torch.float32, device).bind(processors, 1)
    calls: dict[str, Call] = {"nothing": lambda: empty(out.data_ptr())}
    none = torch.zeros(0, device=device)
    for width in (4096, 8192):
        # One vector of the second, so that there is a step before which to meet.
        one, sums = torch.zeros(4, device=device), torch.zeros(width, device=device)
        calls[f"meeting and {width} sums"] = both_read(none, one, sums, 1, 1, meets=True)
    times = interleaved(calls, device, seconds=seconds)
    return "  ".join(f"{name} {1e3 * time.p50_ms:.2f} us" for name, time in times.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each call, in each shape")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda:0"))
    asked = parser.parse_args()
    print("dtype     width   rows  copy us   read %   meet %  operator %  90 % less the meeting's, us")
    with torch.inference_mode():
        for dtype, width in SHAPES:
            for rows in ROWS:
                times = interleaved(calls_on(dtype, width, rows, asked.device), asked.device, seconds=asked.seconds)
                us = {name: 1e3 * time.p50_ms for name, time in times.items()}
                best = {kind: min(us[f"{kind} {name}"] for name in RINGS) for kind in ("read", "meet")}
                percent = [100 * us["copy"] / time for time in (best["read"], best["meet"], us["operator"])]
                shares = f"{percent[0]:7.1f}  {percent[1]:7.1f}  {percent[2]:10.1f}"
                left = us["copy"] / 0.9 - best["meet"]
                name = str(dtype).removeprefix("torch.")
                print(f"{name:<8}  {width:5}  {rows:5}  {us['copy']:7.2f}  {shares}  {left:6.2f}", flush=True)
        print(launches_alone(asked.device, asked.seconds))


if __name__ == "__main__":
    main()
