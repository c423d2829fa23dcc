"""The Triton rung: the norms' kernels, without centre or bias."""

import torch

from kernelyard.kernels.norms.triton_backward import normalise_backward
from kernelyard.kernels.norms.triton_forward import normalise
from kernelyard.kernels.support import dtype_refusal, triton_refusal
from kernelyard.ops.rms_norm.derivative import registered


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return triton_refusal(x) or dtype_refusal(x, weight)


rms_norm = registered("triton", normalise, normalise_backward)
