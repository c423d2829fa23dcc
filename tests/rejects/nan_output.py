"""NaN is not a wildcard.

expect: incorrect_value
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, float("nan"))
