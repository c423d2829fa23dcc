"""What the written backends take as targets."""

import torch

from kernelyard.core.workload import dtype_name

TARGET_DTYPES = (torch.int64, torch.int32)


def target_refusal(input: torch.Tensor, target: torch.Tensor) -> str | None:
    """Why the targets cannot be read, or None."""
    if target.dtype not in TARGET_DTYPES:
        return f"takes targets of int64 and int32, not {dtype_name(target.dtype)}"
    if target.device != input.device:
        return f"needs the targets on {input.device}, not on {target.device}"
    return None
