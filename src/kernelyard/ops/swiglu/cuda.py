"""The CUDA C++ rung: the kernels of `kernels/glu/glu.cu` with silu as their activation."""

import torch

from kernelyard.kernels.glu import cuda as glu
from kernelyard.kernels.glu.registration import register_glu
from kernelyard.kernels.glu.support import refusal_of_dtypes
from kernelyard.kernels.support import cuda_refusal


def _forward(gate: torch.Tensor, up: torch.Tensor | None) -> torch.Tensor:
    return glu.forward("silu", gate, up)


def _backward(dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    return glu.backward("silu", dy, gate, up)


def refusal(gate: torch.Tensor, up: torch.Tensor | None) -> str | None:
    """Why this backend does not take the input, or None."""
    return cuda_refusal(gate) or refusal_of_dtypes(gate, up)


swiglu = register_glu("swiglu_cuda", _forward, _backward)
