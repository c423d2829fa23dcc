"""The Triton rung: the norms' kernels, centred and with a bias."""

import torch

from kernelyard.kernels.norms.shapes import parameters_refusal
from kernelyard.kernels.norms.triton_backward import normalise_backward
from kernelyard.kernels.norms.triton_forward import normalise
from kernelyard.kernels.support import dtype_refusal, triton_refusal
from kernelyard.ops.layer_norm.derivative import registered


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return triton_refusal(x) or dtype_refusal(x, weight, bias) or parameters_refusal(weight, bias)


layer_norm = registered("triton", normalise, normalise_backward)
