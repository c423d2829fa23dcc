"""diag(a) @ B as a module."""

import torch

from kernelyard.ops.diagonal_matmul import diagonal_matmul

__all__ = ["DiagonalMatMul"]


class DiagonalMatMul(torch.nn.Module):
    """diag(a) @ B of two tensors, computed by `kernelyard.ops.diagonal_matmul`: shapes and dtypes as there."""

    def forward(self, a: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return diagonal_matmul(a, B)
