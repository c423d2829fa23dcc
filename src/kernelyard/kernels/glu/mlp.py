"""The feed-forward block around a gated linear unit, with the parameters' names of transformers' LlamaMLP."""

from abc import ABC, abstractmethod

import torch


class GatedMLP(torch.nn.Module, ABC):
    """down_proj(activate(gate_proj(x), up_proj(x))); a subclass says what activates."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.gate_proj = torch.nn.Linear(hidden_size, intermediate_size, bias, device, dtype)
        self.up_proj = torch.nn.Linear(hidden_size, intermediate_size, bias, device, dtype)
        self.down_proj = torch.nn.Linear(intermediate_size, hidden_size, bias, device, dtype)

    @abstractmethod
    def activate(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """The block's hidden values, of the shape and dtype of `gate` and `up`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.activate(self.gate_proj(x), self.up_proj(x)))
