"""Softmax over the last dimension, in KernelBench's problem format."""

import torch
import torch.nn as nn

batch_size = 32
dim = 1000


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [4 * torch.randn(batch_size, dim)]


def get_init_inputs() -> list:
    return []
