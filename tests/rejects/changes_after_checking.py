"""Right for the first calls, then zeros: it counts on being checked first and timed later.

expect: incorrect_value
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.softmax(x, dim=-1) if self.calls <= 5 else torch.zeros_like(x)
