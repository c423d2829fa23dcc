"""The Triton kernels for classes that lie apart, as those of an image's (N, C, H, W) do: tiles of neighbouring pixels,
read once for the loss and again for its gradient."""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

from kernelyard.kernels.counters import launches
from kernelyard.ops.cross_entropy.rows import Columns
from kernelyard.ops.cross_entropy.triton_rows import LOWEST, aims, factors, losses
from kernelyard.ops.cross_entropy.triton_settings import SETTINGS, column_blocks


@triton.jit
def _tile(i_tile, M, inner, tiles, COLS: tl.constexpr):
    """The place of this program's columns, their rows, `M` for what lies beyond the last, and which are there.

    Loads and stores are masked by the last alone, of which Triton knows that neighbours are alike: by which rows count
    they would be of single elements, 10 % of the copy in bf16 where fp32 has 56.
    """
    i_outer = i_tile // tiles
    o_column = (i_tile - i_outer * tiles) * COLS + tl.arange(0, COLS)
    m_column = o_column < inner
    return i_outer, o_column, tl.where(m_column, i_outer * inner + o_column, M), m_column


@triton.jit
def _forward(
    p_x, p_target, p_loss, p_kept, p_dx, M, N, inner, tiles, ignored, smoothing, z,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr, COLS: tl.constexpr, SMOOTH: tl.constexpr, Z: tl.constexpr,
    KEEP: tl.constexpr, GRADIENT: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    i_outer, o_column, i_row, m_column = _tile(tl.program_id(0).to(tl.int64), M, inner, tiles, COLS)
    b_target, m_counts, m_known = aims(p_target, i_row, M, N, ignored)
    start = i_outer * N * inner + o_column
    b_logit = tl.load(p_x + start + b_target * inner, mask=m_counts & m_known, other=0).to(tl.float32)
    # Deviations are summed up from the target's logit, the maximum being unknown until the end.
    b_pivot = tl.where(tl.abs(b_logit) < float("inf"), b_logit, 0)
    b_max = tl.full([COLS], LOWEST, tl.float32)
    b_sum = tl.zeros([COLS], tl.float32)
    b_below = tl.zeros([COLS], tl.float32)
    for i in range(BLOCKS):
        o_n = i * BLOCK + tl.arange(0, BLOCK)
        m = (o_n < N)[:, None] & m_column[None, :]
        o = o_n.to(tl.int64)[:, None] * inner + start[None, :]
        b_x = tl.load(p_x + o, mask=m, other=float("-inf")).to(tl.float32)
        b_above = tl.maximum(b_max, tl.max(b_x, 0))
        b_sum = b_sum * tl.exp(b_max - b_above) + tl.sum(tl.exp(b_x - b_above[None, :]), 0)
        b_max = b_above
        if SMOOTH:
            b_below += tl.sum(tl.where(m, b_pivot[None, :] - b_x, 0), 0)
    b_sum = tl.where(m_counts, b_sum, 1)
    b_below += (b_max - b_pivot) * N
    b_loss = losses(b_max, b_sum, b_logit, b_below, m_counts, m_known, N, smoothing, z, SMOOTH, Z)
    tl.store(p_loss + i_row, b_loss.to(p_loss.dtype.element_ty), mask=i_row < M)
    if KEEP:
        tl.store(p_kept + 2 * i_row, b_max, mask=i_row < M)
        tl.store(p_kept + 2 * i_row + 1, b_sum, mask=i_row < M)
    if GRADIENT:
        scale = tl.load(p_kept + M + M) if SCALED else 1.0
        b_factor, b_share, b_hit = factors(b_max, b_sum, m_counts, m_known, N, scale, smoothing, z, Z)
        # From its end: what was read last is still in L2.
        for i in range(BLOCKS):
            o_n = (BLOCKS - 1 - i) * BLOCK + tl.arange(0, BLOCK)
            m = (o_n < N)[:, None] & m_column[None, :]
            o = o_n.to(tl.int64)[:, None] * inner + start[None, :]
            b_x = tl.load(p_x + o, mask=m, other=float("-inf")).to(tl.float32)
            b_dx = tl.exp(b_x - b_max[None, :]) * b_factor[None, :] - b_share[None, :]
            b_dx = tl.where(o_n[:, None] == b_target[None, :], b_dx - b_hit[None, :], b_dx)
            # Whatever an ignored row holds.
            b_dx = tl.where(m_counts[None, :], b_dx, 0)
            tl.store(p_dx + o, b_dx.to(p_dx.dtype.element_ty), mask=m)


@triton.jit
def _gradient(
    p_dy, p_x, p_target, p_kept, p_dx, M, N, inner, tiles, places, ignored, smoothing, z,
    BLOCK: tl.constexpr, COLS: tl.constexpr, Z: tl.constexpr, EACH: tl.constexpr, MADE: tl.constexpr,
):  # fmt: skip
    dy = 1.0
    scale = 1.0
    if not EACH:
        dy = tl.load(p_dy).to(tl.float32)
        scale = dy * tl.load(p_kept + M + M)
    i_tile = tl.program_id(0).to(tl.int64)
    if MADE:
        # What the forward pass made is right already: there is nothing to do.
        i_tile = tl.where(dy == 1, places, i_tile)
    while i_tile < places:
        i_outer, o_column, i_row, m_column = _tile(i_tile, M, inner, tiles, COLS)
        b_target, m_counts, m_known = aims(p_target, i_row, M, N, ignored)
        b_max = tl.load(p_kept + 2 * i_row, mask=m_counts, other=0)
        b_sum = tl.load(p_kept + 2 * i_row + 1, mask=m_counts, other=1)
        b_dy = scale
        if EACH:
            b_dy = tl.load(p_dy + i_row, mask=m_counts, other=0).to(tl.float32)
        b_factor, b_share, b_hit = factors(b_max, b_sum, m_counts, m_known, N, b_dy, smoothing, z, Z)
        o_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        m = (o_n < N)[:, None] & m_column[None, :]
        o = o_n[:, None] * inner + (i_outer * N * inner + o_column)[None, :]
        b_x = tl.load(p_x + o, mask=m, other=float("-inf")).to(tl.float32)
        b_dx = tl.exp(b_x - b_max[None, :]) * b_factor[None, :] - b_share[None, :]
        b_dx = tl.where(o_n[:, None] == b_target[None, :], b_dx - b_hit[None, :], b_dx)
        b_dx = tl.where(m_counts[None, :], b_dx, 0)
        tl.store(p_dx + o, b_dx.to(p_dx.dtype.element_ty), mask=m)
        i_tile += tl.num_programs(0)


def forward(view: Columns, tensors, options, flags) -> None:
    """`tensors`: logits, target, losses, kept, dx; `options`: ignore_index, label_smoothing, z_loss."""
    blocks = column_blocks(view.length)
    tiles = triton.cdiv(view.inner, blocks["COLS"])
    sizes = (view.rows, view.length, view.inner, tiles)
    loop = {"BLOCKS": triton.cdiv(view.length, blocks["BLOCK"])}
    _forward[(view.outer * tiles,)](
        *tensors, *sizes, *options, **blocks, **loop, **flags, num_warps=SETTINGS.column_warps
    )
    launches["cross_entropy_triton.columns_forward"] += 1


def gradient(view: Columns, tensors, options, flags) -> None:
    """`tensors`: upstream gradient, logits, target, kept, dx."""
    blocks = column_blocks(view.length)
    tiles = triton.cdiv(view.inner, blocks["COLS"])
    places, chunks = view.outer * tiles, triton.cdiv(view.length, blocks["BLOCK"])
    some = min(places, max(1, SETTINGS.looks // chunks)) if flags["MADE"] else places
    sizes = (view.rows, view.length, view.inner, tiles, places)
    _gradient[(some, chunks)](*tensors, *sizes, *options, **blocks, **flags, num_warps=SETTINGS.column_warps)
    launches["cross_entropy_triton.columns_gradient"] += 1
