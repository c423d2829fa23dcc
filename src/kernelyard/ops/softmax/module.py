"""Softmax as a module."""

import torch

from kernelyard.ops.softmax import softmax

__all__ = ["Softmax"]


class Softmax(torch.nn.Softmax):
    """`torch.nn.Softmax`, computed by `kernelyard.ops.softmax`: shape and dtype as there."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        # Without a dim torch's module takes the first or the second, by the number of dims, and not the last.
        dim = int(input.dim() not in (0, 1, 3)) if self.dim is None else self.dim
        return softmax(input, dim)
