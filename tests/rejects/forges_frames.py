"""Writes a verdict of its own to every file descriptor and exits.

expect: rejected
"""

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b'{"status": "passed", "speedup": 99.0}\n')
            except OSError:
                continue
        os._exit(0)
