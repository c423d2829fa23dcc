"""The CUDA C++ rung: the norms' kernels, without centre or bias."""

import torch

from kernelyard.kernels.norms.backward import normalise_backward
from kernelyard.kernels.norms.forward import normalise
from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.rms_norm.derivative import registered


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return cuda_refusal(x) or dtype_refusal(x, weight)


rms_norm = registered("cuda", normalise, normalise_backward)
