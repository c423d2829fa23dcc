"""The Triton rung: the kernels of `kernels/glu/triton.py` with gelu as their activation."""

import torch

from kernelyard.kernels.glu import triton as glu
from kernelyard.kernels.glu.registration import register_glu
from kernelyard.kernels.glu.support import refusal_of_dtypes
from kernelyard.kernels.support import triton_refusal


def _forward(gate: torch.Tensor, up: torch.Tensor | None, approximate: str) -> torch.Tensor:
    return glu.forward(approximate, gate, up)


def _backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor | None, approximate: str
) -> tuple[torch.Tensor, torch.Tensor]:
    return glu.backward(approximate, dy, gate, up)


def refusal(gate: torch.Tensor, up: torch.Tensor | None, approximate: str) -> str | None:
    """Why this backend does not take the input, or None."""
    return triton_refusal(gate) or refusal_of_dtypes(gate, up)


geglu = register_glu("geglu_triton", _forward, _backward)
