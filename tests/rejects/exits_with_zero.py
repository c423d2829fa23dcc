"""Ends the process as if all were well.

expect: crashed
"""

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sys.exit(0)
