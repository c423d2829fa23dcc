"""Prints 256 MiB.

expect: rejected
"""

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(256):
            sys.stdout.write("x" * (1 << 20))
        return torch.softmax(x, dim=-1)
