"""What precompiled headers save of `load_inline`: the same CUDA extensions built without and with them.

    python benchmarks/builds.py [--builds 8] [--jobs 8]

Every build goes the way of a run's: a compile worker in its sandbox. They run beside each other, as there. Prints, for
each way, the median seconds of a build, and builds an hour; needs nvcc for the `.cu`, else only
the C++ half is built. No GPU is touched but for its architecture.
"""

import argparse
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from kernelyard.core.cores import usable_cores
from kernelyard.core.problem import Source
from kernelyard.judge.compiling import build
from kernelyard.judge.headers import precompile, precompiled
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.launch import SandboxKind
from kernelyard.sandbox.pool import Post

CUDA = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
__global__ void scale_{i}(const float* x, float* y, long n) {{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = {i}.f * x[i];
}}
torch::Tensor scale(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    scale_{i}<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}
"""
scale = load_inline("scale", "torch::Tensor scale(torch::Tensor x);", SOURCE, functions=["scale"]{flags})
'''
PLAIN = """
from torch.utils.cpp_extension import load_inline

scale = load_inline(
    "scale", "torch::Tensor scale(torch::Tensor x) {{ return {i} * x; }}", functions=["scale"]{flags}
)
"""


def measure(text: str, builds: int, jobs: int, device: torch.device, first: int) -> str:
    """Build so many, all different; a line of what it took."""
    flags = ("", ', extra_cflags=["-O3"], extra_cuda_cflags=["-O3"]')
    sources = [Source(Path("s.py"), text.format(i=first + i, flags=flags[i % 2])) for i in range(builds)]
    post = Post(SandboxKind.BUBBLEWRAP)

    def one(source: Source) -> float:
        begin = time.monotonic()
        outcome = build(source, post, device, Deadlines(compile=600))
        if not outcome.tree:
            raise SystemExit(f"a build failed: {outcome.end}")
        return time.monotonic() - begin

    begin = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        seconds = list(pool.map(one, sources))
    wall = time.monotonic() - begin
    return f"{statistics.median(seconds):6.1f} s a build, {3600 * builds / wall:5.0f} an hour"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=usable_cores())
    given = parser.parse_args()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    text = CUDA if device.type == "cuda" else PLAIN
    with tempfile.TemporaryDirectory() as cache:
        os.environ["KERNELYARD_CACHE"] = cache
        assert precompiled() is None
        print(f"torch {torch.__version__}, {given.builds} builds, {given.jobs} at a time, {usable_cores()} cores")
        print(f"without  {measure(text, given.builds, given.jobs, device, 1)}", flush=True)
        begin = time.monotonic()
        folder = precompile()
        if folder is None:
            raise SystemExit("the headers cannot be precompiled here")
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(f"headers  {time.monotonic() - begin:6.1f} s to precompile, {size / 1e6:.0f} MB", flush=True)
        print(f"with     {measure(text, given.builds, given.jobs, device, 1001)}", flush=True)


if __name__ == "__main__":
    main()
