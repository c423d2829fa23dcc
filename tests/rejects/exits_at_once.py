"""Ends the process behind the interpreter's back, when it is imported.

expect: crashed
"""

import os

import torch
import torch.nn as nn

os._exit(0)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x
