"""What the Triton kernels of the norms share: where a tile of lines lies, casting orders, running statistics.

A line is a row, or a column of an outer x length x inner tensor; a tile is LINES of them by their length, and every
reduction is along axis 1. Bounds of loops go through `bound`.
"""

# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl

from kernelyard.core.interpreter import interpreting


def bound(count: int) -> int | tl.constexpr:
    """A loop's bound as an argument: Triton 3.6's interpreter reads it only from a constant under NumPy 2.4."""
    return tl.constexpr(count) if interpreting() else count


def on(tensor: torch.Tensor) -> torch.cuda.device:
    """Makes the tensor's GPU the current one, where Triton launches; nothing on a CPU."""
    return torch.cuda.device(tensor.device.index if tensor.is_cuda else -1)


@triton.jit
def place(i_tile, M, N, K, pitch, LINES: tl.constexpr, COLUMNS: tl.constexpr):
    """Lines of a tile: their numbers, which exist, where they start in an input and in a contiguous tensor."""
    if COLUMNS:
        blocks = tl.cdiv(K, LINES)
        i_outer = (i_tile // blocks).to(tl.int64)
        o_k = (i_tile % blocks).to(tl.int64) * LINES + tl.arange(0, LINES)[:, None]
        i_line = i_outer * K + o_k
        m_line = (o_k < K) & (i_line < M)
        o_input = i_outer * N * K + o_k
        o_dense = o_input
    else:
        i_line = i_tile.to(tl.int64) * LINES + tl.arange(0, LINES)[:, None]
        m_line = i_line < M
        o_input = i_line * pitch
        o_dense = i_line * N
    return i_line, m_line, o_input, o_dense


@triton.jit
def along_line(o_n, K, COLUMNS: tl.constexpr):
    """Offsets of a line's elements from its start."""
    return o_n.to(tl.int64) * K if COLUMNS else o_n


@triton.jit
def rounded(b_hat, p_x, p_w, CASTING: tl.constexpr):
    """x_hat, rounded before the weight where the casting order does so."""
    if CASTING == "llama":
        b_hat = b_hat.to(p_x.dtype.element_ty).to(tl.float32)
    if CASTING == "t5" and p_w is not None:
        b_hat = b_hat.to(p_w.dtype.element_ty).to(tl.float32)
    return b_hat


@triton.jit
def factor(p_w, o_n, m_n, offset):
    """offset + weight in fp32; 1 where there is no weight."""
    if p_w is None:
        b_w = tl.full(o_n.shape, 1, tl.float32)
    else:
        b_w = tl.load(p_w + o_n, mask=m_n, other=0).to(tl.float32) + offset
    return b_w


@triton.jit
def take(b_mean, b_square, b_x, m, i, CENTRED: tl.constexpr):
    """Lane by lane, step `i`: Welford's running mean and squared distance from it; without centre the squares alone."""
    if CENTRED:
        b_d = tl.where(m, b_x - b_mean, 0)
        b_mean += b_d / (i + 1)
        b_square += b_d * tl.where(m, b_x - b_mean, 0)
    else:
        b_square += b_x * b_x
    return b_mean, b_square


@triton.jit
def merge(b_count, b_mean, b_square, N, CENTRED: tl.constexpr):
    """Mean and squared distance from it of N elements, from those of their parts along axis 1."""
    square = tl.sum(b_square, 1)[:, None]
    if CENTRED:
        mean = (tl.sum(b_mean * b_count, 1) / N)[:, None]
        b_d = b_mean - mean
        square += tl.sum(b_d * b_d * b_count, 1)[:, None]
    else:
        mean = tl.zeros_like(square)
    return mean, square
