"""What the backends of gated linear units take."""

import torch

from kernelyard.core.workload import dtype_name
from kernelyard.kernels.support import dtype_refusal


def refusal_of_dtypes(gate: torch.Tensor, up: torch.Tensor | None) -> str | None:
    """Why the dtypes are not taken, or None."""
    if up is not None and gate.dtype != up.dtype:
        return f"takes gate and up of one dtype, not {dtype_name(gate.dtype)} and {dtype_name(up.dtype)}"
    return dtype_refusal(gate)
