"""A linear layer whose outputs are summed, as a module."""

import torch

from kernelyard.ops.fused_linear_rowsum import fused_linear_rowsum

__all__ = ["LinearRowSum"]


class LinearRowSum(torch.nn.Linear):
    """`torch.nn.Linear(in_features, out_features, bias)`, its initialisation and `state_dict` keys, then `.sum(-1)`.

    Takes (..., in_features) and returns (...), computed by `kernelyard.ops.fused_linear_rowsum`.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return fused_linear_rowsum(input, self.weight, self.bias)
