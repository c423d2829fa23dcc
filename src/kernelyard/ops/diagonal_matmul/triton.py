"""The Triton rung: blocks of whole rows, or pieces of long ones whose parts of da a second kernel adds up."""

import torch
import triton
import triton.language as tl

from kernelyard.kernels.counters import launches
from kernelyard.kernels.layout import along
from kernelyard.kernels.support import dtype_refusal, triton_refusal
from kernelyard.ops.diagonal_matmul.derivative import registered
from kernelyard.ops.diagonal_matmul.triton_settings import SETTINGS, blocks


@triton.jit
def _place(M, N, CHUNKS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows and columns of this program, and which of them exist."""
    i_group = tl.program_id(0).to(tl.int64)
    i_row = i_group // CHUNKS * ROWS + tl.arange(0, ROWS)[:, None]
    o_n = i_group % CHUNKS * BLOCK + tl.arange(0, BLOCK)[None, :]
    return i_row, o_n, (i_row < M) & (o_n < N)


@triton.jit
def _rows_forward(p_a, p_b, p_y, M, N, pitch, CHUNKS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i_row, o_n, m = _place(M, N, CHUNKS, ROWS, BLOCK)
    b_a = tl.load(p_a + i_row, mask=i_row < M, other=0).to(tl.float32)
    b_b = tl.load(p_b + i_row * pitch + o_n, mask=m, other=0).to(tl.float32)
    tl.store(p_y + i_row * N + o_n, (b_a * b_b).to(p_y.dtype.element_ty), mask=m)


@triton.jit
def _rows_backward(
    p_dy,
    p_a,
    p_b,
    p_da,
    p_db,
    M,
    N,
    pitch,
    CHUNKS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    MATRIX: tl.constexpr,
):
    i_row, o_n, m = _place(M, N, CHUNKS, ROWS, BLOCK)
    b_dy = tl.load(p_dy + i_row * N + o_n, mask=m, other=0).to(tl.float32)
    if VECTOR:
        b_b = tl.load(p_b + i_row * pitch + o_n, mask=m, other=0).to(tl.float32)
        b_da = tl.sum(b_dy * b_b, 1)[:, None]
        tl.store(p_da + i_row * CHUNKS + tl.program_id(0) % CHUNKS, b_da.to(p_da.dtype.element_ty), mask=i_row < M)
    if MATRIX:
        b_a = tl.load(p_a + i_row, mask=i_row < M, other=0).to(tl.float32)
        tl.store(p_db + i_row * N + o_n, (b_a * b_dy).to(p_db.dtype.element_ty), mask=m)


@triton.jit
def _rows_finish(p_parts, p_da, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    b_parts = tl.zeros([BLOCK], tl.float32)
    for i in range(0, CHUNKS, BLOCK):
        o = i + tl.arange(0, BLOCK)
        b_parts += tl.load(p_parts + i_row * CHUNKS + o, mask=o < CHUNKS, other=0)
    tl.store(p_da + i_row, tl.sum(b_parts, 0).to(p_da.dtype.element_ty))


def _forward(a: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    y = torch.empty(B.shape, dtype=B.dtype, device=B.device)
    if y.numel() == 0:
        return y
    view, (rows, across, chunks) = along(B, 1), blocks(B.shape[1])
    grid = (triton.cdiv(view.outer, rows) * chunks,)
    sizes = {"CHUNKS": chunks, "ROWS": rows, "BLOCK": across, "num_warps": SETTINGS.warps}
    with _on(y):
        _rows_forward[grid](a.contiguous(), view.data, y, view.outer, view.length, view.pitch, **sizes)
    launches["diagonal_matmul_triton.rows_forward"] += 1
    return y


def _backward(
    dy: torch.Tensor,
    a: torch.Tensor,
    B: torch.Tensor | None,
    matrix: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    da = a.new_empty(a.shape if B is not None else 0)
    db = dy.new_empty(dy.shape if matrix else 0)
    if dy.numel() == 0:
        return da.zero_(), db
    view, (rows, across, chunks) = along(dy if B is None else B, 1), blocks(dy.shape[1])
    parts = da if chunks == 1 else da.new_empty(da.numel() * chunks, dtype=torch.float32)
    grid = (triton.cdiv(view.outer, rows) * chunks,)
    sizes = {"CHUNKS": chunks, "ROWS": rows, "BLOCK": across, "num_warps": SETTINGS.warps}
    wanted = {"VECTOR": B is not None, "MATRIX": matrix}
    pointers = (dy.contiguous(), a.contiguous(), view.data, parts, db)
    with _on(dy):
        _rows_backward[grid](*pointers, view.outer, view.length, view.pitch, **sizes, **wanted)
        launches["diagonal_matmul_triton.rows_backward"] += 1
        if chunks > 1 and B is not None:
            _rows_finish[(view.outer,)](parts, da, CHUNKS=chunks, BLOCK=min(1024, triton.next_power_of_2(chunks)))
            launches["diagonal_matmul_triton.rows_finish"] += 1
    return da, db


def _on(tensor: torch.Tensor) -> torch.cuda.device:
    """Makes the tensor's GPU the current one, where Triton launches; nothing on a CPU."""
    return torch.cuda.device(tensor.device.index if tensor.is_cuda else -1)


def refusal(a: torch.Tensor, B: torch.Tensor) -> str | None:
    """Why this backend does not take the inputs, or None."""
    return triton_refusal(B) or dtype_refusal(a, B)


diagonal_matmul = registered("triton", _forward, _backward)
