"""KernelBench level 2, problem 12: the product stays cuBLAS's; what follows it is one pass instead of two.

Predicted: 137 GFLOP in fp32 take some 2.7 ms of an H100, the two pointwise passes 4 x 34 MB (45 us cold), so fusing
them can gain a percent or two and no more.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def multiply_leaky_relu_kernel(x, n, multiplier, negative_slope, BLOCK: tl.constexpr):
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    b_x = tl.load(x + o, mask=m) * multiplier
    tl.store(x + o, tl.where(b_x > 0, b_x, b_x * negative_slope), mask=m)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int, multiplier: float, negative_slope: float) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.multiplier = multiplier
        self.negative_slope = negative_slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # In place: the product is ours, and nobody else sees it before it is scaled.
        y = F.linear(x, self.gemm.weight, self.gemm.bias)
        grid = (triton.cdiv(y.numel(), 4096),)
        multiply_leaky_relu_kernel[grid](y, y.numel(), self.multiplier, self.negative_slope, BLOCK=4096, num_warps=8)
        return y
