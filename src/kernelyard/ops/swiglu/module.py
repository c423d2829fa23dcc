"""SwiGLU as a module."""

import torch

from kernelyard.kernels.glu.mlp import GatedMLP
from kernelyard.ops.swiglu import swiglu

__all__ = ["SwiGLU"]


class SwiGLU(GatedMLP):
    """transformers' LlamaMLP (hidden_act="silu"): x (..., hidden_size) to the same shape, `state_dict` keys as there.

    `gate_proj`, `up_proj` and `down_proj` are torch's Linear; between them stands `kernelyard.ops.swiglu`.
    """

    def activate(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return swiglu(gate, up)
