"""A shape that broadcasts against the right one.

expect: incorrect_shape
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1).mean(dim=0, keepdim=True)
