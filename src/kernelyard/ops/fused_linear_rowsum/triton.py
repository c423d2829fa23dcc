"""The Triton rung: kernels that add up columns in parts, one that adds the parts up, and one for what follows."""

import torch
import triton
import triton.language as tl

from kernelyard.kernels.counters import launches
from kernelyard.kernels.layout import along
from kernelyard.kernels.powers import power_above
from kernelyard.kernels.support import dtype_refusal, triton_refusal
from kernelyard.ops.fused_linear_rowsum.derivative import empty_gradients, registered
from kernelyard.ops.fused_linear_rowsum.triton_settings import SETTINGS, shares

# Loop bounds are constants, because the interpreter of Triton 3.6 cannot read one from an argument under NumPy 2.4.
# What all columns share - the sum of bias, the sum of dy - is one number that may cancel, so it is added up in float64;
# it follows the columns as number N.


@triton.jit
def _sum_columns(
    p_w,
    p_b,
    p_parts,
    p_totals,
    M,
    N,
    pitch,
    BIAS: tl.constexpr,
    TILES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i_part = tl.program_id(1).to(tl.int64)
    o_i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    b_total = tl.zeros([ROWS], tl.float64)
    for i in range(TILES):
        o_row = (i_part * TILES + i) * ROWS + tl.arange(0, ROWS)
        m = (o_row < M)[:, None] & (o_i < N)[None, :]
        b_sum += tl.load(p_w + o_row[:, None] * pitch + o_i[None, :], mask=m, other=0).to(tl.float32)
        if BIAS:
            b_total += tl.load(p_b + o_row, mask=o_row < M, other=0).to(tl.float64)
    p_parts += i_part * N
    tl.store(p_parts + o_i, tl.sum(b_sum, 0), mask=o_i < N)
    if tl.program_id(0) == 0:
        tl.store(p_totals + i_part, tl.sum(b_total, 0))


@triton.jit
def _add_parts(p_parts, p_totals, p_sums, N, PARTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    o_i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    b_total = tl.zeros([ROWS], tl.float64)
    for i in range(0, PARTS, ROWS):
        o_part = i + tl.arange(0, ROWS)
        m = (o_part < PARTS)[:, None] & (o_i < N)[None, :]
        b_sum += tl.load(p_parts + o_part[:, None] * N + o_i[None, :], mask=m, other=0)
        b_total += tl.load(p_totals + o_part, mask=o_part < PARTS, other=0)
    tl.store(p_sums + o_i, tl.sum(b_sum, 0), mask=o_i < N)
    if tl.program_id(0) == 0:
        tl.store(p_sums + N, tl.sum(b_total, 0).to(tl.float32))


@triton.jit
def _dot_rows(p_x, p_sums, p_y, M, N, pitch, STEPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    o_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    b_dot = tl.zeros([ROWS, BLOCK], tl.float32)
    for i in range(STEPS):
        o_i = i * BLOCK + tl.arange(0, BLOCK)
        m = (o_row < M)[:, None] & (o_i < N)[None, :]
        b_x = tl.load(p_x + o_row[:, None] * pitch + o_i[None, :], mask=m, other=0).to(tl.float32)
        b_dot += b_x * tl.load(p_sums + o_i, mask=o_i < N, other=0)[None, :]
    b_y = tl.sum(b_dot, 1) + tl.load(p_sums + N)
    tl.store(p_y + o_row, b_y.to(p_y.dtype.element_ty), mask=o_row < M)


@triton.jit
def _spread_rows(
    p_dy,
    p_x,
    p_sums,
    p_dx,
    p_parts,
    p_totals,
    M,
    N,
    pitch,
    dy_pitch,
    GIVEN: tl.constexpr,
    WANTED: tl.constexpr,
    TILES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = dy (x) sums where it is WANTED, and parts of dy @ x where x is GIVEN and of dy's sum."""
    i_part = tl.program_id(1).to(tl.int64)
    o_i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_v = tl.zeros([ROWS, BLOCK], tl.float32)
    b_total = tl.zeros([ROWS], tl.float64)
    if WANTED:
        b_sums = tl.load(p_sums + o_i, mask=o_i < N, other=0)[None, :]
    for i in range(TILES):
        o_row = (i_part * TILES + i) * ROWS + tl.arange(0, ROWS)
        m = (o_row < M)[:, None] & (o_i < N)[None, :]
        b_dy = tl.load(p_dy + o_row * dy_pitch, mask=o_row < M, other=0).to(tl.float32)
        b_total += b_dy.to(tl.float64)
        if GIVEN:
            b_x = tl.load(p_x + o_row[:, None] * pitch + o_i[None, :], mask=m, other=0).to(tl.float32)
            b_v += b_dy[:, None] * b_x
        if WANTED:
            b_dx = (b_dy[:, None] * b_sums).to(p_dx.dtype.element_ty)
            tl.store(p_dx + o_row[:, None] * N + o_i[None, :], b_dx, mask=m)
    p_parts += i_part * N
    tl.store(p_parts + o_i, tl.sum(b_v, 0), mask=o_i < N)
    if tl.program_id(0) == 0:
        tl.store(p_totals + i_part, tl.sum(b_total, 0))


@triton.jit
def _repeat_row(
    p_v,
    p_dw,
    p_db,
    M,
    N,
    GIVEN: tl.constexpr,
    BIAS: tl.constexpr,
    TILES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i_part = tl.program_id(1).to(tl.int64)
    o_i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_v = tl.load(p_v + o_i, mask=o_i < N, other=0)
    for i in range(TILES):
        o_row = (i_part * TILES + i) * ROWS + tl.arange(0, ROWS)
        if GIVEN:
            m = (o_row < M)[:, None] & (o_i < N)[None, :]
            b_dw = tl.broadcast_to(b_v.to(p_dw.dtype.element_ty)[None, :], (ROWS, BLOCK))
            tl.store(p_dw + o_row[:, None] * N + o_i[None, :], b_dw, mask=m)
        if BIAS:
            b_db = tl.broadcast_to(tl.load(p_v + N).to(p_db.dtype.element_ty), (ROWS,))
            tl.store(p_db + o_row, b_db, mask=(o_row < M) & (tl.program_id(0) == 0))


def _forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    width = weight.shape[1]
    y, sums = x.new_empty(x.shape[:-1]), x.new_empty(width + 1, dtype=torch.float32)
    if y.numel() == 0:
        return y, sums[:-1]
    (x, rows, x_pitch), (weight, outputs, w_pitch) = _rows(x), _rows(weight)
    columns, count, tiles = shares(outputs, width)
    parts, totals = sums.new_empty(count, width), sums.new_empty(count, dtype=torch.float64)
    across = max(1, triton.cdiv(width, columns))
    sizes = {"TILES": tiles, "ROWS": SETTINGS.rows, "BLOCK": columns, "num_warps": SETTINGS.warps}
    given = sums if bias is None else bias.contiguous()
    block = min(SETTINGS.dot_columns, power_above(width))
    with _on(x):
        _sum_columns[(across, count)](
            weight, given, parts, totals, outputs, width, w_pitch, BIAS=bias is not None, **sizes
        )
        _add(parts, totals, sums)
        _dot_rows[(triton.cdiv(rows, SETTINGS.dot_rows),)](
            x,
            sums,
            y,
            rows,
            width,
            x_pitch,
            STEPS=triton.cdiv(width, block),
            ROWS=SETTINGS.dot_rows,
            BLOCK=block,
            num_warps=SETTINGS.warps,
        )
    launches["fused_linear_rowsum_triton.sum_columns"] += 1
    launches["fused_linear_rowsum_triton.dot_rows"] += 1
    return y, sums[:-1]


def _backward(
    dy: torch.Tensor,
    x: torch.Tensor | None,
    sums: torch.Tensor | None,
    out_features: int,
    weight_dtype: torch.dtype,
    bias_dtype: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dx, dweight, dbias = gradients = empty_gradients(dy, x, sums, out_features, weight_dtype, bias_dtype)
    dy = dy.reshape(-1)
    rows, width, pitch = dy.numel(), (0 if sums is None else sums.shape[0]), 0
    if x is not None:
        x, _, pitch = _rows(x)
        width = x.shape[-1]
    columns, count, tiles = shares(rows, width)
    across = max(1, triton.cdiv(width, columns))
    parts = dy.new_empty(count, width, dtype=torch.float32)
    totals, v = parts.new_empty(count, dtype=torch.float64), parts.new_empty(width + 1)
    wanted = {"GIVEN": x is not None, "WANTED": sums is not None}
    sizes = {"ROWS": SETTINGS.rows, "BLOCK": columns, "num_warps": SETTINGS.warps}
    pointers = (dy, dx if x is None else x, dx if sums is None else sums, dx, parts, totals)
    with _on(dy):
        _spread_rows[(across, count)](*pointers, rows, width, pitch, dy.stride(0), **wanted, TILES=tiles, **sizes)
        launches["fused_linear_rowsum_triton.spread_rows"] += 1
        if out_features and (x is not None or bias_dtype is not None):
            _add(parts, totals, v)
            columns, count, tiles = shares(out_features, width)
            wanted = {"GIVEN": x is not None, "BIAS": bias_dtype is not None}
            _repeat_row[(across, count)](v, dweight, dbias, out_features, width, **wanted, TILES=tiles, **sizes)
            launches["fused_linear_rowsum_triton.repeat_row"] += 1
    return gradients


def _add(parts: torch.Tensor, totals: torch.Tensor, sums: torch.Tensor) -> None:
    """The parts of every column added up, in the same order at every call."""
    count, width = parts.shape
    sizes = {"PARTS": count, "ROWS": min(32, power_above(count)), "BLOCK": 64, "num_warps": 4}
    _add_parts[(max(1, triton.cdiv(width, 64)),)](parts, totals, sums, width, **sizes)
    launches["fused_linear_rowsum_triton.add_parts"] += 1


def _rows(matrix: torch.Tensor) -> tuple[torch.Tensor, int, int]:
    """The matrix with adjacent elements in its rows, copied where they are not, how many rows, and their distance."""
    if matrix.numel() == 0:
        return matrix, matrix.shape[:-1].numel(), 0
    view = along(matrix, -1)
    return view.data, view.outer, view.pitch


def _on(tensor: torch.Tensor) -> torch.cuda.device:
    """Makes the tensor's GPU the current one, where Triton launches; nothing on a CPU."""
    return torch.cuda.device(tensor.device.index if tensor.is_cuda else -1)


def refusal(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> str | None:
    """Why this backend does not take the inputs, or None."""
    return triton_refusal(x) or dtype_refusal(x, weight, bias)


fused_linear_rowsum = registered("triton", _forward, _backward)
