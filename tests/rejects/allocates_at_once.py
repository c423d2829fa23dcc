"""Asks for more memory than there is.

expect: out_of_memory
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1) + bytearray(1 << 45)[0]
