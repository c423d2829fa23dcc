"""How much memory a problem takes, counted without running it."""

from pathlib import Path

import torch

from kernelyard.core.problem import Problem
from kernelyard.judge.counting import Uncountable, count

# Alive at once are the inputs and answers of two questions, and in float64 the answer to one, with inputs and answer of
# half its rows: of as many inputs as answers 16 bytes an element of fp32. Counted of 13 of KernelBench's largest it was
# 13 to 22, and 13 to 28 with their stresses, which are skipped by name where a device's memory does not hold them; a
# host's would swap. A loss over all rows at once took 40.
QUESTIONS = 2
SETS = {"cpu": 3, "cuda": 1}
TOO_LARGE = "too large for this machine"
"""How a reason begins that says so."""
NO_ROOM = "the device's memory does not hold it"
"""Why a question was not asked."""


def too_large(problem: Problem, dtype: torch.dtype, device: torch.device, memory_bytes: int) -> str:
    """Why a problem does not fit, in one line; empty where it does or nobody knows."""
    try:
        elements = count(problem, dtype).elements
    except Uncountable:
        # Whatever it does that meta tensors cannot, its size stays unknown and its memory decides.
        return ""
    needed = elements * (8 * SETS.get(device.type, 3) + QUESTIONS * dtype.itemsize)
    if needed <= memory_bytes:
        return ""
    return f"{TOO_LARGE}: about {needed / 1e9:.0f} GB to check it, {memory_bytes / 1e9:.0f} GB are free"


def lacks_memory(error: Exception) -> bool:
    """Whether that is what it says: of a host torch has no error of its own for it, and a reference's stands in others.

    A device's takes a paragraph, with what each of the processes beside it has.
    """
    return any(words in str(error) for words in ("out of memory", "can't allocate", "OutOfMemory"))


def free_memory(device: torch.device) -> int:
    """Bytes that a check may take: nine tenths of what is free on a device; half on a host, which has other work."""
    if device.type == "cuda":
        return int(0.9 * torch.cuda.mem_get_info(device)[0])
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024 // 2
