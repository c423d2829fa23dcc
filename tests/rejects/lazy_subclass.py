"""A tensor subclass that could compute when it is looked at.

expect: rejected
"""

import torch
import torch.nn as nn


class Lazy(torch.Tensor):
    pass


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1).as_subclass(Lazy)
