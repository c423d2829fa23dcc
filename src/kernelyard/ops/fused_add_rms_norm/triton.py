"""The Triton rung: the norms' kernels, adding on the way in and on the way back."""

import torch

from kernelyard.kernels.norms.shapes import residual_refusal
from kernelyard.kernels.norms.triton_backward import normalise_backward
from kernelyard.kernels.norms.triton_forward import add_normalise
from kernelyard.kernels.support import dtype_refusal, triton_refusal
from kernelyard.ops.fused_add_rms_norm.derivative import registered


def refusal(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> str | None:
    """Why this backend does not take the input, or None."""
    return triton_refusal(x) or dtype_refusal(x, weight) or residual_refusal(x, residual)


fused_add_rms_norm = registered("triton", add_normalise, normalise_backward)
