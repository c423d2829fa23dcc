"""Another answer to the same input.

expect: nondeterministic
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.softmax(x if self.calls != 2 else 2 * x, dim=-1)
