"""The forward of the norms in Triton: whole lines in registers, a loop where they are longer, split where they are few.

Mean and variance are never taken as E[x^2] - mean^2: in registers the variance is a second pass over what is held,
longer lines carry Welford's pair lane by lane and merge it at the end.
"""

# mypy: disable-error-code="no-untyped-def"

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from kernelyard.kernels.counters import launches
from kernelyard.kernels.layout import Rows, along
from kernelyard.kernels.norms.shapes import lines, result_dtype, view
from kernelyard.kernels.norms.triton_settings import (
    SETTINGS,
    Blocks,
    forward_blocks,
    loop_blocks,
    split_blocks,
)
from kernelyard.kernels.norms.triton_tiles import along_line, bound, factor, merge, on, place, rounded, take
from kernelyard.kernels.powers import power_above


@triton.jit
def _scale_and_store(b_hat, p_x, p_w, p_b, p_y, o_y, o_n, m_n, m, offset, CASTING: tl.constexpr):
    b_y = rounded(b_hat, p_x, p_w, CASTING) * factor(p_w, o_n, m_n, offset)
    if p_b is not None:
        b_y += tl.load(p_b + o_n, mask=m_n, other=0).to(tl.float32)
    tl.store(p_y + o_y, b_y.to(p_y.dtype.element_ty), mask=m)


@triton.jit
def _store_statistics(p_mean, p_rstd, i_line, m_line, mean, rstd):
    tl.store(p_rstd + i_line, rstd, mask=m_line)
    if p_mean is not None:
        tl.store(p_mean + i_line, mean, mask=m_line)


@triton.jit
def _input(p_x, p_r, p_t, o_x, o_r, o_t, m):
    """x in fp32; where there is a residual, the sum rounded to x's dtype, which is also stored."""
    b_x = tl.load(p_x + o_x, mask=m, other=0, eviction_policy="evict_last").to(tl.float32)
    if p_r is not None:
        b_x += tl.load(p_r + o_r, mask=m, other=0).to(tl.float32)
        b_t = b_x.to(p_t.dtype.element_ty)
        tl.store(p_t + o_t, b_t, mask=m)
        b_x = b_t.to(tl.float32)
    return b_x


@triton.jit
def _held(
    p_x,
    p_r,
    p_w,
    p_b,
    p_y,
    p_t,
    p_mean,
    p_rstd,
    M,
    N,
    K,
    pitch,
    pitch_r,
    eps,
    offset,
    LINES: tl.constexpr,
    LENGTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    CASTING: tl.constexpr,
):
    i_line, m_line, o_x, o_y = place(tl.program_id(0), M, N, K, pitch, LINES, COLUMNS)
    o_n = tl.arange(0, LENGTH)[None, :]
    m_n = o_n < N
    m = m_line & m_n
    o = along_line(o_n, K, COLUMNS)
    b_x = _input(p_x, p_r, p_t, o_x + o, i_line * pitch_r + o, o_y + o, m)
    mean = tl.zeros_like(i_line).to(tl.float32)
    if p_mean is not None:
        mean = (tl.sum(b_x, 1) / N)[:, None]
        b_x = tl.where(m_n, b_x - mean, 0)
    rstd = tl.rsqrt((tl.sum(b_x * b_x, 1) / N)[:, None] + eps)
    _store_statistics(p_mean, p_rstd, i_line, m_line, mean, rstd)
    _scale_and_store(b_x * rstd, p_x, p_w, p_b, p_y, o_y + o, o_n, m_n, m, offset, CASTING)


@triton.jit
def _looped(
    p_x,
    p_r,
    p_w,
    p_b,
    p_y,
    p_t,
    p_mean,
    p_rstd,
    M,
    N,
    K,
    pitch,
    pitch_r,
    eps,
    offset,
    steps,
    LINES: tl.constexpr,
    LENGTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    CASTING: tl.constexpr,
):
    i_line, m_line, o_x, o_y = place(tl.program_id(0), M, N, K, pitch, LINES, COLUMNS)
    o_lane = tl.arange(0, LENGTH)[None, :]
    b_mean = tl.zeros([LINES, LENGTH], tl.float32)
    b_square = tl.zeros([LINES, LENGTH], tl.float32)
    for i in tl.range(steps):
        o_n = i * LENGTH + o_lane
        m = m_line & (o_n < N)
        o = along_line(o_n, K, COLUMNS)
        b_x = _input(p_x, p_r, p_t, o_x + o, i_line * pitch_r + o, o_y + o, m)
        b_mean, b_square = take(b_mean, b_square, b_x, m, i, p_mean is not None)
    mean, square = merge((N - o_lane + LENGTH - 1) // LENGTH, b_mean, b_square, N, p_mean is not None)
    rstd = tl.rsqrt(square / N + eps)
    _store_statistics(p_mean, p_rstd, i_line, m_line, mean, rstd)
    # Backwards: what was read last is still in L2. Where there is a residual, what was just stored is read.
    for i in tl.range(steps):
        o_n = (steps - 1 - i) * LENGTH + o_lane
        m_n = o_n < N
        m = m_line & m_n
        o = along_line(o_n, K, COLUMNS)
        p_from = p_x + o_x + o if p_r is None else p_t + o_y + o
        b_x = tl.load(p_from, mask=m, other=0, eviction_policy="evict_first").to(tl.float32)
        _scale_and_store((b_x - mean) * rstd, p_x, p_w, p_b, p_y, o_y + o, o_n, m_n, m, offset, CASTING)


@triton.jit
def _split_part(
    p_x,
    p_r,
    p_t,
    p_parts,
    i_first,
    N,
    pitch,
    pitch_r,
    TILES: tl.constexpr,
    LENGTH: tl.constexpr,
    CENTRED: tl.constexpr,
):
    i_chunk, i_row = tl.program_id(0).to(tl.int64), i_first + tl.program_id(1).to(tl.int64)
    o_lane = tl.arange(0, LENGTH)[None, :]
    b_mean = tl.zeros([1, LENGTH], tl.float32)
    b_square = tl.zeros([1, LENGTH], tl.float32)
    o_chunk = i_chunk * TILES * LENGTH
    for i in range(TILES):
        o_n = o_chunk + i * LENGTH + o_lane
        m = o_n < N
        b_x = _input(p_x, p_r, p_t, i_row * pitch + o_n, i_row * pitch_r + o_n, i_row * N + o_n, m)
        b_mean, b_square = take(b_mean, b_square, b_x, m, i, CENTRED)
    n = tl.minimum(N - o_chunk, TILES * LENGTH)
    mean, square = merge((n - o_lane + LENGTH - 1) // LENGTH, b_mean, b_square, n, CENTRED)
    parts = tl.num_programs(0) * tl.num_programs(1)
    o_part = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0) + tl.zeros([1, 1], tl.int32)
    tl.store(p_parts + o_part, mean)
    tl.store(p_parts + parts + o_part, square)


@triton.jit
def _split_write(
    p_x,
    p_w,
    p_b,
    p_y,
    p_mean,
    p_rstd,
    p_parts,
    i_first,
    N,
    pitch,
    eps,
    offset,
    TILES: tl.constexpr,
    CHUNKS: tl.constexpr,
    LENGTH: tl.constexpr,
    CASTING: tl.constexpr,
):
    chunks = tl.num_programs(0)
    i_chunk, i_row = (chunks - 1 - tl.program_id(0)).to(tl.int64), i_first + tl.program_id(1).to(tl.int64)
    o_parts = tl.arange(0, CHUNKS)[None, :]
    m_parts = o_parts < chunks
    p_parts += tl.program_id(1) * chunks + o_parts
    b_mean = tl.load(p_parts, mask=m_parts, other=0)
    b_square = tl.load(p_parts + chunks * tl.num_programs(1), mask=m_parts, other=0)
    b_count = tl.maximum(tl.minimum(N - o_parts.to(tl.int64) * TILES * LENGTH, TILES * LENGTH), 0)
    mean, square = merge(b_count, b_mean, b_square, N, p_mean is not None)
    rstd = tl.rsqrt(square / N + eps)
    _store_statistics(p_mean, p_rstd, i_row + tl.zeros([1, 1], tl.int32), i_chunk == 0, mean, rstd)
    for i in range(TILES):
        o_n = (i_chunk * TILES + TILES - 1 - i) * LENGTH + tl.arange(0, LENGTH)[None, :]
        m = o_n < N
        b_x = tl.load(p_x + i_row * pitch + o_n, mask=m, other=0, eviction_policy="evict_first").to(tl.float32)
        b_hat = (b_x - mean) * rstd
        _scale_and_store(b_hat, p_x, p_w, p_b, p_y, i_row * N + o_n, o_n, m, m, offset, CASTING)


@dataclass(frozen=True)
class _Tensors:
    """What a launch reads and writes; `r` and `t` are the residual and the total, None without."""

    x: torch.Tensor
    r: torch.Tensor | None
    w: torch.Tensor | None
    b: torch.Tensor | None
    y: torch.Tensor
    t: torch.Tensor | None
    mean: torch.Tensor | None
    rstd: torch.Tensor


def normalise(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    *,
    eps: float,
    offset: float,
    casting: str,
    centred: bool,
    count: int,
    dim: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`x` normalised over `count` dims ending at `dim`, with mean (empty unless centred) and rstd of every line."""
    y = torch.empty(x.shape, dtype=result_dtype(x, weight, casting), device=x.device)
    number = lines(x, count, dim)
    mean = torch.empty(number if centred else 0, dtype=torch.float32, device=x.device)
    rstd = torch.empty(number, dtype=torch.float32, device=x.device)
    if x.numel() == 0:
        return y, mean.zero_(), rstd.zero_()
    at = view(x, count, dim)
    w, b = (None if p is None else p.contiguous() for p in (weight, bias))
    tensors = _Tensors(at.data, None, w, b, y, None, mean if centred else None, rstd)
    with on(x):
        _run(tensors, at, at.pitch, eps, offset, casting)
    return y, mean, rstd


def add_normalise(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    *,
    eps: float,
    offset: float,
    casting: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x + residual in x's dtype, normalised over the last dim: (y, total, rstd)."""
    y = torch.empty(x.shape, dtype=result_dtype(x, weight, casting), device=x.device)
    total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rstd = torch.empty(lines(x, 1, -1), dtype=torch.float32, device=x.device)
    if x.numel() == 0:
        return y, total, rstd.zero_()
    at, beside = along(x, -1), along(residual, -1)
    w = None if weight is None else weight.contiguous()
    tensors = _Tensors(at.data, beside.data, w, None, y, total, None, rstd)
    with on(x):
        _run(tensors, at, beside.pitch, eps, offset, casting)
    return y, total, rstd


def _run(tensors: _Tensors, at: Rows, pitch_r: int, eps: float, offset: float, casting: str) -> None:
    t, number = tensors, at.outer * at.inner
    blocks = forward_blocks(at, t.x.element_size())
    held = blocks is not None
    if blocks is None and at.inner == 1 and at.outer < SETTINGS.few_rows:
        _run_split(t, at, pitch_r, eps, offset, casting)
        return
    blocks = blocks or loop_blocks(at, residual=t.r is not None)
    tiles = _tiles(at, blocks)
    if not held and at.inner > 1 and tiles < SETTINGS.few_columns:
        _run_turned(t, at, eps, offset, casting)
        return
    pointers = (t.x, t.r, t.w, t.b, t.y, t.t, t.mean, t.rstd)
    sizes = (number, at.length, at.inner, at.pitch, pitch_r, eps, offset)
    shape = {"LINES": blocks.lines, "LENGTH": blocks.length, "COLUMNS": at.inner > 1}
    options = {**shape, "CASTING": casting, "num_warps": blocks.warps}
    if held:
        _held[(tiles,)](*pointers, *sizes, **options)
    else:
        steps = bound(-(-at.length // blocks.length))
        _looped[(tiles,)](*pointers, *sizes, steps, **options)
    launches[f"norms_triton.{'held' if held else 'looped'}_forward"] += 1


def _tiles(at: Rows, blocks: Blocks) -> int:
    if at.inner > 1:
        return at.outer * -(-at.inner // blocks.lines)
    return -(-at.outer // blocks.lines)


def _run_split(t: _Tensors, at: Rows, pitch_r: int, eps: float, offset: float, casting: str) -> None:
    chunks, tiles, batch = split_blocks(at.length, at.data.element_size())
    source, pitch = (t.x, at.pitch) if t.t is None else (t.t, at.length)
    options = {"TILES": tiles, "LENGTH": SETTINGS.split_block, "num_warps": SETTINGS.split_warps}
    for first in range(0, at.outer, batch):
        grid = (chunks, min(batch, at.outer - first))
        parts = torch.empty(2 * grid[0] * grid[1], dtype=torch.float32, device=t.x.device)
        centred = t.mean is not None
        _split_part[grid](t.x, t.r, t.t, parts, first, at.length, at.pitch, pitch_r, CENTRED=centred, **options)
        _split_write[grid](
            source,
            t.w,
            t.b,
            t.y,
            t.mean,
            t.rstd,
            parts,
            first,
            at.length,
            pitch,
            eps,
            offset,
            CHUNKS=power_above(chunks),
            CASTING=casting,
            **options,
        )
        launches["norms_triton.split_forward"] += 2


def _run_turned(t: _Tensors, at: Rows, eps: float, offset: float, casting: str) -> None:
    """Few long columns, as rows of a copy."""
    shape = (at.outer, at.length, at.inner)
    turned = t.x.view(shape).transpose(1, 2).contiguous()
    y = torch.empty(turned.shape, dtype=t.y.dtype, device=t.y.device)
    rows = Rows(turned, at.outer * at.inner, at.length, 1, at.length)
    _run(replace(t, x=turned, y=y), rows, at.length, eps, offset, casting)
    t.y.view(shape).copy_(y.transpose(1, 2))
