"""How much memory a problem takes, counted without running it."""

from pathlib import Path

import torch

from kernelyard.core.problem import Problem
from kernelyard.judge.counting import Uncountable, count

# Alive at once in float64: inputs, weights and answers of the reference; as much again while it is compared. A stress
# takes twice that, and is skipped by name where a device's memory does not hold it; a host's would swap.
SETS = {"cpu": 4, "cuda": 2}


def too_large(problem: Problem, dtype: torch.dtype, device: torch.device, memory_bytes: int) -> str:
    """Why a problem does not fit, in one line; empty where it does or nobody knows."""
    try:
        elements = count(problem, dtype).elements
    except Uncountable:
        # Whatever it does that meta tensors cannot, its size stays unknown and its memory decides.
        return ""
    needed = elements * (8 * SETS.get(device.type, 4) + dtype.itemsize)
    if needed <= memory_bytes:
        return ""
    return f"too large for this machine: about {needed / 1e9:.0f} GB to check it, {memory_bytes / 1e9:.0f} GB are free"


def free_memory(device: torch.device) -> int:
    """Bytes that a check may take: nine tenths of what is free on a device; half on a host, which has other work."""
    if device.type == "cuda":
        return int(0.9 * torch.cuda.mem_get_info(device)[0])
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024 // 2
