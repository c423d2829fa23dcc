"""How much memory a problem takes, asked of torch's meta device, which allocates nothing."""

from pathlib import Path

import torch

from kernelyard.core.problem import Problem
from kernelyard.sandbox.wire import named_leaves

# Alive at once in float64: inputs, weights and answers of the reference; as much again while it is compared. A stress
# takes twice that, and is skipped by name where a device's memory does not hold it; a host's would swap.
SETS = {"cpu": 4, "cuda": 2}


def elements(problem: Problem) -> int | None:
    """Elements of inputs, weights and answers together; None where the problem does not run on the meta device."""
    try:
        with torch.device("meta"), torch.no_grad():
            inputs = list(problem.get_inputs())
            model = problem.model_class(*problem.get_init_inputs()).eval()
            answers = model(*inputs)
    except Exception:
        # Whatever it does that meta tensors cannot, its size stays unknown and its memory decides.
        return None
    tensors = [value for _, value in named_leaves([inputs, answers]) if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() for tensor in (*tensors, *model.state_dict().values()))


def too_large(problem: Problem, dtype: torch.dtype, device: torch.device, memory_bytes: int) -> str:
    """Why a problem does not fit, in one line; empty where it does or nobody knows."""
    count = elements(problem)
    needed = (count or 0) * (8 * SETS.get(device.type, 4) + dtype.itemsize)
    if needed <= memory_bytes:
        return ""
    return f"too large for this machine: about {needed / 1e9:.0f} GB to check it, {memory_bytes / 1e9:.0f} GB are free"


def free_memory(device: torch.device) -> int:
    """Bytes that a check may take: nine tenths of what is free on a device; half on a host, which has other work."""
    if device.type == "cuda":
        return int(0.9 * torch.cuda.mem_get_info(device)[0])
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024 // 2
