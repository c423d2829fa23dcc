"""The backward of the norms in Triton: programs walk over lines and keep their own sums for dweight and dbias.

With x_hat = (x - mean) rstd and g = dy (offset + weight): dx = rstd (g - x_hat mean(g x_hat) - mean(g)), the last
term only where the norm is centred; dweight = sum of dy x_hat, dbias = sum of dy over the lines. Every program writes
its sums once, in fp32; a last kernel adds them in a fixed order.
"""

# mypy: disable-error-code="no-untyped-def"

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from kernelyard.kernels.counters import launches
from kernelyard.kernels.layout import Rows
from kernelyard.kernels.norms.shapes import view
from kernelyard.kernels.norms.triton_settings import (
    SETTINGS,
    Walk,
    backward_walk,
    long_groups,
    processors,
    split_blocks,
)
from kernelyard.kernels.norms.triton_tiles import along_line, bound, factor, on, place
from kernelyard.kernels.powers import power_above

# g enters its row's mean rounded, so it must be rounded where the mean is taken off: fused into that subtraction, a
# row of one element got 1e-5 for a gradient of 0.
_UNFUSED = {"enable_fp_fusion": False}


@triton.jit
def _hat(b_x, p_mean, rstd, i_line, m_line):
    if p_mean is not None:
        b_x -= tl.load(p_mean + i_line, mask=m_line, other=0)
    return b_x * rstd


@triton.jit
def _store_gradient(b_g, b_hat, c_hat, c_one, rstd, p_dtotal, p_dx, o, m, CENTRED: tl.constexpr):
    b_dx = b_g - b_hat * c_hat
    if CENTRED:
        b_dx -= c_one
    b_dx *= rstd
    if p_dtotal is not None:
        b_dx += tl.load(p_dtotal + o, mask=m, other=0).to(tl.float32)
    tl.store(p_dx + o, b_dx.to(p_dx.dtype.element_ty), mask=m)


@triton.jit
def _held(
    p_dy,
    p_x,
    p_w,
    p_mean,
    p_rstd,
    p_dtotal,
    p_dx,
    p_dw,
    p_db,
    M,
    N,
    K,
    pitch,
    offset,
    steps,
    LINES: tl.constexpr,
    LENGTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
):
    i_program, programs = tl.program_id(0), tl.num_programs(0)
    o_n = tl.arange(0, LENGTH)[None, :]
    m_n = o_n < N
    o = along_line(o_n, K, COLUMNS)
    b_w = factor(p_w, o_n, m_n, offset)
    b_dw = tl.zeros([LINES, LENGTH], tl.float32)
    b_db = tl.zeros([LINES, LENGTH], tl.float32)
    for i in tl.range(steps, num_stages=STAGES):
        i_line, m_line, o_x, o_y = place(i * programs + i_program, M, N, K, pitch, LINES, COLUMNS)
        m = m_line & m_n
        b_dy = tl.load(p_dy + o_y + o, mask=m, other=0).to(tl.float32)
        b_x = tl.load(p_x + o_x + o, mask=m, other=0).to(tl.float32)
        rstd = tl.load(p_rstd + i_line, mask=m_line, other=0)
        b_hat = _hat(b_x, p_mean, rstd, i_line, m_line)
        b_g = b_dy * b_w
        c_hat = (tl.sum(b_g * b_hat, 1) / N)[:, None]
        c_one = (tl.sum(b_g, 1) / N)[:, None] if p_mean is not None else 0.0
        _store_gradient(b_g, b_hat, c_hat, c_one, rstd, p_dtotal, p_dx, o_y + o, m, p_mean is not None)
        b_dw += b_dy * b_hat
        b_db += b_dy
    o_sum = i_program.to(tl.int64) * N + o_n
    if p_dw is not None:
        tl.store(p_dw + o_sum, tl.sum(b_dw, 0)[None, :], mask=m_n)
    if p_db is not None:
        tl.store(p_db + o_sum, tl.sum(b_db, 0)[None, :], mask=m_n)


@triton.jit
def _long_sums(
    p_dy,
    p_x,
    p_w,
    p_mean,
    p_rstd,
    p_parts,
    N,
    pitch,
    offset,
    chunks,
    TILES: tl.constexpr,
    LENGTH: tl.constexpr,
):
    """One chunk of one row: the sums of g x_hat and of g."""
    i_chunk = tl.program_id(0) % chunks
    i_row = (tl.program_id(0) // chunks).to(tl.int64)
    rstd = tl.load(p_rstd + i_row)
    b_dot = tl.zeros([LENGTH], tl.float32)
    b_sum = tl.zeros([LENGTH], tl.float32)
    for i in range(TILES):
        o_n = (i_chunk * TILES + i).to(tl.int64) * LENGTH + tl.arange(0, LENGTH)
        m = o_n < N
        b_x = tl.load(p_x + i_row * pitch + o_n, mask=m, other=0).to(tl.float32)
        b_g = tl.load(p_dy + i_row * N + o_n, mask=m, other=0).to(tl.float32) * factor(p_w, o_n, m, offset)
        b_dot += b_g * _hat(b_x, p_mean, rstd, i_row, i_row >= 0)
        b_sum += b_g
    tl.store(p_parts + tl.program_id(0), tl.sum(b_dot, 0))
    if p_mean is not None:
        tl.store(p_parts + tl.num_programs(0) + tl.program_id(0), tl.sum(b_sum, 0))


@triton.jit
def _long_walk(
    p_dy,
    p_x,
    p_w,
    p_mean,
    p_rstd,
    p_dtotal,
    p_dx,
    p_dw,
    p_db,
    p_parts,
    M,
    N,
    pitch,
    offset,
    chunks,
    groups,
    steps,
    CHUNKS: tl.constexpr,
    LENGTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One block of columns over the rows i_group, i_group + groups, ..."""
    i_group = tl.program_id(0) % groups
    o_n = (tl.program_id(0) // groups).to(tl.int64) * LENGTH + tl.arange(0, LENGTH)
    m_n = o_n < N
    o_part = tl.arange(0, CHUNKS)
    b_w = factor(p_w, o_n, m_n, offset)
    b_dw = tl.zeros([LENGTH], tl.float32)
    b_db = tl.zeros([LENGTH], tl.float32)
    for i in tl.range(steps, num_stages=STAGES):
        i_row = (i * groups + i_group).to(tl.int64)
        m_row = i_row < M
        m = m_n & m_row
        m_part = (o_part < chunks) & m_row
        c_hat = tl.sum(tl.load(p_parts + i_row * chunks + o_part, mask=m_part, other=0), 0) / N
        c_one = 0.0
        if p_mean is not None:
            c_one = tl.sum(tl.load(p_parts + (M + i_row) * chunks + o_part, mask=m_part, other=0), 0) / N
        rstd = tl.load(p_rstd + i_row, mask=m_row, other=0)
        b_dy = tl.load(p_dy + i_row * N + o_n, mask=m, other=0).to(tl.float32)
        b_x = tl.load(p_x + i_row * pitch + o_n, mask=m, other=0).to(tl.float32)
        b_hat = _hat(b_x, p_mean, rstd, i_row, m_row)
        _store_gradient(b_dy * b_w, b_hat, c_hat, c_one, rstd, p_dtotal, p_dx, i_row * N + o_n, m, p_mean is not None)
        b_dw += b_dy * b_hat
        b_db += b_dy
    o_sum = i_group.to(tl.int64) * N + o_n
    if p_dw is not None:
        tl.store(p_dw + o_sum, b_dw, mask=m_n)
    if p_db is not None:
        tl.store(p_db + o_sum, b_db, mask=m_n)


@triton.jit
def _add_up(p_parts, p_dw, p_db, G, N, steps, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """Sum of G x N parts over G; the second row of programs does those of dbias, which lie behind dweight's."""
    o_n = tl.program_id(0).to(tl.int64) * LENGTH + tl.arange(0, LENGTH)[None, :]
    o_g = tl.arange(0, ROWS)[:, None].to(tl.int64)
    p_parts += tl.program_id(1).to(tl.int64) * G * N
    b_sum = tl.zeros([ROWS, LENGTH], tl.float32)
    for i in tl.range(steps):
        i_part = i * ROWS + o_g
        b_sum += tl.load(p_parts + i_part * N + o_n, mask=(i_part < G) & (o_n < N), other=0)
    b_out = tl.sum(b_sum, 0)[None, :].to(p_dw.dtype.element_ty)
    m_bias = tl.program_id(1) == 1
    tl.store(p_dw + o_n, b_out, mask=(o_n < N) & ~m_bias)
    if p_db is not None:
        tl.store(p_db + o_n, b_out, mask=(o_n < N) & m_bias)


@dataclass(frozen=True)
class _Tensors:
    """What a launch reads and writes; the gradients that nothing adds to are None."""

    dy: torch.Tensor
    x: torch.Tensor
    w: torch.Tensor | None
    mean: torch.Tensor | None
    rstd: torch.Tensor
    dtotal: torch.Tensor | None
    dx: torch.Tensor
    dw: torch.Tensor | None
    db: torch.Tensor | None


def normalise_backward(
    dy: torch.Tensor | None,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    dtotal: torch.Tensor | None = None,
    offset: float,
    casting: str,
    centred: bool,
    bias: bool,
    count: int,
    dim: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dx, dweight, dbias); dbias and dweight of the weight's shape and dtype, empty where there is none.

    `casting` needs nothing here: what the forward rounded on the way is passed over, as its own rounding would be.
    """
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    like = torch.empty(0, dtype=x.dtype, device=x.device) if weight is None else weight
    dweight = torch.empty(like.shape, dtype=like.dtype, device=x.device)
    dbias = torch.empty(like.shape if bias else 0, dtype=like.dtype, device=x.device)
    if x.numel() == 0 or dy is None:
        return dx.zero_() if dtotal is None else dx.copy_(dtotal), dweight.zero_(), dbias.zero_()
    tensors = _Tensors(
        dy.contiguous(),
        x,
        None if weight is None else weight.contiguous(),
        mean if centred else None,
        rstd,
        None if dtotal is None else dtotal.contiguous(),
        dx,
        None if weight is None else dweight,
        dbias if bias else None,
    )
    with on(x):
        _run(tensors, view(x, count, dim), offset)
    return dx, dweight, dbias


def _run(t: _Tensors, at: Rows, offset: float) -> None:
    walk = backward_walk(at, centred=t.mean is not None)
    if walk is None and at.inner > 1:
        _run_turned(t, at, offset)
    elif walk is None:
        _run_long(t, at, offset)
    else:
        _run_held(t, at, walk, offset)


def _run_held(t: _Tensors, at: Rows, walk: Walk, offset: float) -> None:
    tiles = at.outer * -(-at.inner // walk.lines) if at.inner > 1 else -(-at.outer // walk.lines)
    programs = min(tiles, walk.programs * processors(t.x.device))
    parts, p_dw, p_db = _parts(t, programs, at.length)
    _held[(programs,)](
        t.dy,
        at.data,
        t.w,
        t.mean,
        t.rstd,
        t.dtotal,
        t.dx,
        p_dw,
        p_db,
        at.outer * at.inner,
        at.length,
        at.inner,
        at.pitch,
        offset,
        bound(-(-tiles // programs)),
        LINES=walk.lines,
        LENGTH=walk.length,
        COLUMNS=at.inner > 1,
        STAGES=walk.stages,
        num_warps=walk.warps,
        **_UNFUSED,
    )
    launches["norms_triton.held_backward"] += 1
    _add(t, parts, programs, at.length)


def _run_long(t: _Tensors, at: Rows, offset: float) -> None:
    length, rows = at.length, at.outer
    chunks, tiles, _ = split_blocks(length, t.x.element_size())
    split = {"LENGTH": SETTINGS.split_block, "num_warps": SETTINGS.split_warps, **_UNFUSED}
    sums = torch.empty(2 * rows * chunks, dtype=torch.float32, device=t.x.device)
    inputs = (t.dy, at.data, t.w, t.mean, t.rstd)
    _long_sums[(rows * chunks,)](*inputs, sums, length, at.pitch, offset, chunks, TILES=tiles, **split)
    blocks = -(-length // SETTINGS.sum_block)
    groups = long_groups(blocks, rows, t.x.device)
    parts, p_dw, p_db = _parts(t, groups, length)
    _long_walk[(blocks * groups,)](
        *inputs,
        t.dtotal,
        t.dx,
        p_dw,
        p_db,
        sums,
        rows,
        length,
        at.pitch,
        offset,
        chunks,
        groups,
        bound(-(-rows // groups)),
        CHUNKS=power_above(chunks),
        LENGTH=SETTINGS.sum_block,
        STAGES=SETTINGS.sum_stages,
        num_warps=SETTINGS.sum_warps,
        **_UNFUSED,
    )
    launches["norms_triton.long_backward"] += 2
    _add(t, parts, groups, length)


def _run_turned(t: _Tensors, at: Rows, offset: float) -> None:
    """Columns too long to hold, as rows of copies."""
    shape = (at.outer, at.length, at.inner)
    x, dy = (tensor.reshape(shape).transpose(1, 2).contiguous() for tensor in (at.data, t.dy))
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _run(replace(t, x=x, dy=dy, dx=dx), Rows(x, at.outer * at.inner, at.length, 1, at.length), offset)
    t.dx.view(shape).copy_(dx.transpose(1, 2))


def _parts(t: _Tensors, programs: int, length: int) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Room for every program's sums: all of it, dweight's and dbias's part of it."""
    wanted = (t.dw is not None) + (t.db is not None)
    parts = torch.empty((wanted, programs, length), dtype=torch.float32, device=t.x.device)
    return parts, parts[0] if t.dw is not None else None, parts[1] if t.db is not None else None


def _add(t: _Tensors, parts: torch.Tensor, programs: int, length: int) -> None:
    if t.dw is None:
        return
    rows, across = SETTINGS.add_rows, SETTINGS.add_block
    grid = (-(-length // across), len(parts))
    steps = bound(-(-programs // rows))
    _add_up[grid](parts, t.dw, t.db, programs, length, steps, ROWS=rows, LENGTH=across, num_warps=SETTINGS.add_warps)
    launches["norms_triton.add_up"] += 1
