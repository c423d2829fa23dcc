"""A wrong solution: the masked lanes of the last block take part in the sum, as exp(0) each."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, n_columns, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    o_column = tl.arange(0, BLOCK)
    m_column = o_column < n_columns
    b_x = tl.load(x + i_row * n_columns + o_column, mask=m_column, other=0.0).to(tl.float32)
    b_e = tl.exp(b_x - tl.max(b_x, 0))
    tl.store(y + i_row * n_columns + o_column, (b_e / tl.sum(b_e, 0)).to(y.dtype.element_ty), mask=m_column)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        n_columns = x.shape[-1]
        softmax_kernel[(x.shape[0],)](x, y, n_columns, BLOCK=triton.next_power_of_2(n_columns))
        return y
