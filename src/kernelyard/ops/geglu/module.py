"""GEGLU as a module."""

import torch

from kernelyard.kernels.glu.mlp import GatedMLP
from kernelyard.ops.geglu import geglu

__all__ = ["GEGLU"]


class GEGLU(GatedMLP):
    """transformers' GemmaMLP: x (..., hidden_size) to the same shape, `state_dict` keys as there.

    `gate_proj`, `up_proj` and `down_proj` are torch's Linear; between them stands `kernelyard.ops.geglu`.
    `approximate` is torch's: "tanh" is Gemma's hidden_act "gelu_pytorch_tanh", "none" is "gelu".
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        bias: bool = False,
        approximate: str = "none",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(hidden_size, intermediate_size, bias, device, dtype)
        self.approximate = approximate

    def activate(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return geglu(gate, up, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"
