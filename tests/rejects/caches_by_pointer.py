"""Remembers answers by address and shape; correct only while nobody reuses memory.

expect: incorrect_value
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[tuple[int, ...], torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = (x.data_ptr() >> 40, *x.shape)
        if key not in self.answers:
            self.answers[key] = torch.softmax(x, dim=-1)
        return self.answers[key].clone()
