"""The Triton rung: one program per row, the whole row in registers."""

import os

import torch
import triton
import triton.language as tl

from kernelyard.kernels.counters import launches
from kernelyard.kernels.layout import along
from kernelyard.ops.softmax.derivative import dtype_refusal, registered


@triton.jit
def _rows_forward(p_x, p_y, pitch, N, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    o_n = tl.arange(0, BLOCK)
    b_x = tl.load(p_x + i_row * pitch + o_n, mask=o_n < N, other=float("-inf")).to(tl.float32)
    b_e = tl.exp(b_x - tl.max(b_x, 0))
    b_e = b_e / tl.sum(b_e, 0)
    tl.store(p_y + i_row * N + o_n, b_e.to(p_y.dtype.element_ty), mask=o_n < N)


@triton.jit
def _rows_backward(p_dy, p_y, p_dx, N, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64) * N
    o_n = tl.arange(0, BLOCK)
    b_dy = tl.load(p_dy + i_row + o_n, mask=o_n < N, other=0).to(tl.float32)
    b_y = tl.load(p_y + i_row + o_n, mask=o_n < N, other=0).to(tl.float32)
    b_dx = b_y * (b_dy - tl.sum(b_dy * b_y, 0))
    tl.store(p_dx + i_row + o_n, b_dx.to(p_dx.dtype.element_ty), mask=o_n < N)


def _forward(x: torch.Tensor, dim: int) -> torch.Tensor:
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    swapped = x.movedim(dim, -1) if x.dim() else x
    rows = along(swapped.contiguous(), -1)
    y = torch.empty(swapped.shape, dtype=x.dtype, device=x.device)
    _rows_forward[(rows.outer,)](
        rows.data, y, rows.pitch, rows.length, BLOCK=triton.next_power_of_2(rows.length)
    )
    launches["softmax_triton.rows_forward"] += 1
    return y.movedim(-1, dim).contiguous() if x.dim() else y


def _backward(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    if y.numel() == 0:
        return torch.empty(y.shape, dtype=y.dtype, device=y.device)
    swapped_dy = (dy.movedim(dim, -1) if y.dim() else dy).contiguous()
    swapped_y = (y.movedim(dim, -1) if y.dim() else y).contiguous()
    rows = along(swapped_y, -1)
    dx = torch.empty_like(swapped_y)
    _rows_backward[(rows.outer,)](
        swapped_dy, swapped_y, dx, rows.length, BLOCK=triton.next_power_of_2(rows.length)
    )
    launches["softmax_triton.rows_backward"] += 1
    return dx.movedim(-1, dim).contiguous() if y.dim() else dx


def refusal(x: torch.Tensor, dim: int) -> str | None:
    """Why this backend does not take the input, or None."""
    if x.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        return "needs a GPU, or TRITON_INTERPRET=1 for Triton's interpreter"
    return dtype_refusal(x)


softmax = registered("triton", _forward, _backward)
