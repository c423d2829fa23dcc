"""KernelBench level 1, problem 12: diag(A) @ B as one pass over B.

Each program scales a tile of one row: A's element is one broadcast load, B is read once and C written once.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_rows_kernel(a, b, c, n_columns, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    o_column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_column = o_column < n_columns
    p_b = b + i_row * n_columns + o_column
    b_b = tl.load(p_b, mask=m_column, eviction_policy="evict_first")
    tl.store(c + i_row * n_columns + o_column, tl.load(a + i_row) * b_b, mask=m_column)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        b = B.contiguous()
        c = torch.empty_like(b)
        block = min(4096, triton.next_power_of_2(b.shape[1]))
        grid = (b.shape[0], triton.cdiv(b.shape[1], block))
        scale_rows_kernel[grid](A.contiguous(), b, c, b.shape[1], BLOCK=block, num_warps=8)
        return c
