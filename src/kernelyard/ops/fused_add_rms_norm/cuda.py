"""The CUDA C++ rung: the norms' kernels, adding on the way in and on the way back."""

import torch

from kernelyard.kernels.norms.backward import normalise_backward
from kernelyard.kernels.norms.forward import add_normalise
from kernelyard.kernels.norms.shapes import residual_refusal
from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.fused_add_rms_norm.derivative import registered


def refusal(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> str | None:
    """Why this backend does not take the input, or None."""
    return cuda_refusal(x) or dtype_refusal(x, weight) or residual_refusal(x, residual)


fused_add_rms_norm = registered("cuda", add_normalise, normalise_backward)
