"""The CUDA C++ rung: the norms' kernels, centred and with a bias."""

import torch

from kernelyard.kernels.norms.backward import normalise_backward
from kernelyard.kernels.norms.forward import normalise
from kernelyard.kernels.norms.shapes import parameters_refusal
from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.layer_norm.derivative import registered


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return cuda_refusal(x) or dtype_refusal(x, weight, bias) or parameters_refusal(weight, bias)


layer_norm = registered("cuda", normalise, normalise_backward)
