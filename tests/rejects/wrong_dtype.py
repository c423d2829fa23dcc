"""Right values in float64.

expect: incorrect_dtype
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.double(), dim=-1)
