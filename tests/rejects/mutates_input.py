"""Right answer, but the input is overwritten with it.

expect: input_mutated
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(torch.softmax(x, dim=-1)).clone()
