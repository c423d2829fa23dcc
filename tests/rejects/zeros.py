"""Zeros of the right shape: within any absolute tolerance that suits a softmax of 1000.

expect: incorrect_value
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x)
