"""The Triton rung: a row in one program's registers, read in a loop where it is longer and again for its gradient."""

import torch
import triton
import triton.language as tl

from kernelyard.kernels.counters import launches
from kernelyard.kernels.powers import power_above
from kernelyard.kernels.support import dtype_refusal, triton_refusal
from kernelyard.ops.cross_entropy import triton_columns
from kernelyard.ops.cross_entropy.derivative import fresh_gradient, registered
from kernelyard.ops.cross_entropy.rows import columns_of, rows_of
from kernelyard.ops.cross_entropy.targets import target_refusal
from kernelyard.ops.cross_entropy.triton_rows import LOWEST, aims, factors, losses
from kernelyard.ops.cross_entropy.triton_settings import (
    SETTINGS,
    gradient_blocks,
    loop_blocks,
    row_blocks,
    total_blocks,
)


@triton.jit
def _starts(i_row, pitch, run, jump):
    """Where rows start: `pitch` apart, and runs of `run` rows `jump` apart."""
    i_run = i_row // run
    return i_run * jump + (i_row - i_run * run) * pitch


@triton.jit
def _take(b_m, b_s, b_x):
    """Online, lane by lane: a running maximum and the sum of exp(x - maximum), with one exponential per element."""
    b_above = b_x - b_m
    b_e = tl.exp(-tl.abs(b_above))
    return tl.maximum(b_m, b_x), tl.where(b_above > 0, b_s * b_e + 1, b_s + b_e)


@triton.jit
def _rows_forward(
    p_x, p_target, p_loss, p_kept, p_dx, M, N, pitch, run, jump, ignored, smoothing, z,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, SMOOTH: tl.constexpr, Z: tl.constexpr,
    KEEP: tl.constexpr, GRADIENT: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    o_n = tl.arange(0, BLOCK)
    b_target, m_counts, m_known = aims(p_target, i_row, M, N, ignored)
    p_row = p_x + _starts(i_row, pitch, run, jump)
    m = (o_n < N)[None, :] & m_counts[:, None]
    b_x = tl.load(p_row[:, None] + o_n[None, :], mask=m, other=float("-inf")).to(tl.float32)
    b_logit = tl.load(p_row + b_target, mask=m_counts & m_known, other=0).to(tl.float32)
    b_max = tl.max(b_x, 1)
    b_max = tl.where(b_max == float("-inf"), 0, b_max)
    b_e = tl.exp(b_x - b_max[:, None])
    b_sum = tl.where(m_counts, tl.sum(b_e, 1), 1)
    b_below = b_sum
    if SMOOTH:
        b_below = tl.sum(tl.where(m, b_max[:, None] - b_x, 0), 1)
    b_loss = losses(b_max, b_sum, b_logit, b_below, m_counts, m_known, N, smoothing, z, SMOOTH, Z)
    tl.store(p_loss + i_row, b_loss.to(p_loss.dtype.element_ty), mask=i_row < M)
    if KEEP:
        tl.store(p_kept + 2 * i_row, b_max, mask=i_row < M)
        tl.store(p_kept + 2 * i_row + 1, b_sum, mask=i_row < M)
    if GRADIENT:
        # Not 2 * M, which is of 32 bits: 2^30 rows are more than that holds.
        scale = tl.load(p_kept + M + M) if SCALED else 1.0
        b_factor, b_share, b_hit = factors(b_max, b_sum, m_counts, m_known, N, scale, smoothing, z, Z)
        b_dx = b_e * b_factor[:, None] - b_share[:, None]
        b_dx = tl.where(o_n[None, :] == b_target[:, None], b_dx - b_hit[:, None], b_dx)
        m = (o_n < N)[None, :] & (i_row < M)[:, None]
        tl.store(p_dx + i_row[:, None] * N + o_n[None, :], b_dx.to(p_dx.dtype.element_ty), mask=m)


# Loop bounds are constants, because the interpreter of Triton 3.6 cannot read one from an argument under NumPy 2.4.
@triton.jit
def _long_forward(
    p_x, p_target, p_loss, p_kept, p_dx, M, N, pitch, run, jump, ignored, smoothing, z,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr, SMOOTH: tl.constexpr, Z: tl.constexpr,
    KEEP: tl.constexpr, GRADIENT: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    b_target, m_counts, m_known = aims(p_target, i_row, M, N, ignored)
    p_row = p_x + _starts(i_row, pitch, run, jump)
    length = tl.where(m_counts, N, 0)
    b_logit = tl.load(p_row + b_target, mask=m_counts & m_known, other=0).to(tl.float32)
    # Deviations are summed up from the target's logit, the maximum being unknown until the end.
    pivot = tl.where(tl.abs(b_logit) < float("inf"), b_logit, 0)
    o_n = tl.arange(0, BLOCK)
    b_m = tl.full([BLOCK], LOWEST, tl.float32)
    b_s = tl.zeros([BLOCK], tl.float32)
    b_below = tl.zeros([BLOCK], tl.float32)
    for i in range(BLOCKS):
        o = i * BLOCK + o_n
        b_x = tl.load(p_row + o, mask=o < length, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
        b_m, b_s = _take(b_m, b_s, b_x)
        if SMOOTH:
            b_below += tl.where(o < length, pivot - b_x, 0)
    top = tl.max(b_m, 0)
    total = tl.where(m_counts, tl.sum(b_s * tl.exp(b_m - top), 0), 1)
    below = tl.sum(b_below, 0) + (top - pivot) * N
    b_loss = losses(top, total, b_logit, below, m_counts, m_known, N, smoothing, z, SMOOTH, Z)
    tl.store(p_loss + i_row, b_loss.to(p_loss.dtype.element_ty))
    if KEEP:
        tl.store(p_kept + 2 * i_row, top)
        tl.store(p_kept + 2 * i_row + 1, total)
    if GRADIENT:
        scale = tl.load(p_kept + M + M) if SCALED else 1.0
        factor, share, hit = factors(top, total, m_counts, m_known, N, scale, smoothing, z, Z)
        # The row is read again from its end: what was read last is still in L2.
        for i in range(BLOCKS):
            o = (BLOCKS - 1 - i) * BLOCK + o_n
            b_x = tl.load(p_row + o, mask=o < length, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)
            b_dx = tl.exp(b_x - top) * factor - share
            b_dx = tl.where(o == b_target, b_dx - hit, b_dx)
            tl.store(p_dx + i_row * N + o, b_dx.to(p_dx.dtype.element_ty), mask=o < N)


@triton.jit
def _gradient(
    p_dy, p_x, p_target, p_kept, p_dx, M, N, pitch, run, jump, ignored, smoothing, z,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, Z: tl.constexpr, EACH: tl.constexpr, MADE: tl.constexpr,
):  # fmt: skip
    dy = 1.0
    scale = 1.0
    if not EACH:
        dy = tl.load(p_dy).to(tl.float32)
        scale = dy * tl.load(p_kept + M + M)
    i_group = tl.program_id(0).to(tl.int64)
    if MADE:
        # What the forward pass made is right already: there is nothing to do.
        i_group = tl.where(dy == 1, M, i_group)
    while i_group * ROWS < M:
        i_row = i_group * ROWS + tl.arange(0, ROWS)
        b_target, m_counts, m_known = aims(p_target, i_row, M, N, ignored)
        b_max = tl.load(p_kept + 2 * i_row, mask=m_counts, other=0)
        b_sum = tl.load(p_kept + 2 * i_row + 1, mask=m_counts, other=1)
        b_dy = scale
        if EACH:
            b_dy = tl.load(p_dy + i_row, mask=m_counts, other=0).to(tl.float32)
        b_factor, b_share, b_hit = factors(b_max, b_sum, m_counts, m_known, N, b_dy, smoothing, z, Z)
        o_n = (tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[None, :]
        p_row = p_x + _starts(i_row, pitch, run, jump)[:, None]
        b_x = tl.load(p_row + o_n, mask=(o_n < N) & m_counts[:, None], other=float("-inf")).to(tl.float32)
        b_dx = tl.exp(b_x - b_max[:, None]) * b_factor[:, None] - b_share[:, None]
        b_dx = tl.where(o_n == b_target[:, None], b_dx - b_hit[:, None], b_dx)
        m = (o_n < N) & (i_row < M)[:, None]
        tl.store(p_dx + i_row[:, None] * N + o_n, b_dx.to(p_dx.dtype.element_ty), mask=m)
        i_group += tl.num_programs(0)


@triton.jit
def _part(p_loss, p_target, p_parts, M, ignored, STEPS: tl.constexpr, BLOCK: tl.constexpr, LOSS: tl.constexpr):
    """This program's share of the rows' losses, and of the rows that count."""
    i_part = tl.program_id(0).to(tl.int64)
    b_loss = tl.zeros([BLOCK], tl.float32)
    b_count = tl.zeros([BLOCK], tl.float32)
    for i in range(STEPS):
        o = (i_part * STEPS + i) * BLOCK + tl.arange(0, BLOCK)
        b_target = tl.load(p_target + o, mask=o < M, other=0).to(tl.int64)
        b_count += tl.where((o < M) & (b_target != ignored), 1.0, 0.0)
        if LOSS:
            b_loss += tl.load(p_loss + o, mask=o < M, other=0)
    tl.store(p_parts + 2 * i_part, tl.sum(b_loss, 0))
    tl.store(p_parts + 2 * i_part + 1, tl.sum(b_count, 0))


@triton.jit
def _total(
    p_parts, p_loss, p_scale, PARTS, BLOCK: tl.constexpr, MEAN: tl.constexpr, LOSS: tl.constexpr, KEEP: tl.constexpr
):
    """The loss from its parts, and the factor that the reduction puts on a row's gradient."""
    o = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(p_parts + 2 * o, mask=o < PARTS, other=0), 0)
    count = tl.sum(tl.load(p_parts + 2 * o + 1, mask=o < PARTS, other=0), 0)
    if LOSS:
        tl.store(p_loss, (total / count if MEAN else total).to(p_loss.dtype.element_ty))
    if KEEP:
        tl.store(p_scale, 1 / count if MEAN else 1.0)


def _forward(input, target, ignore_index, reduction, label_smoothing, z_loss, *, keep, gradient):
    none, mean = reduction == "none", reduction == "mean"
    device, rows = input.device, target.numel()
    loss = torch.empty(target.shape if none else (), dtype=input.dtype, device=device)
    kept = torch.empty(2 * rows + (not none), dtype=torch.float32, device=device) if keep else None
    dx = fresh_gradient(input) if gradient else None
    losses = loss if none else torch.empty(rows, dtype=torch.float32, device=device)
    target = target.contiguous()
    with _on(input):
        if mean and gradient:
            _add_up(None, target, None, kept, ignore_index, mean)
        if rows:
            _run(input, target, losses, kept, dx, ignore_index, label_smoothing, z_loss, mean)
        if not none:
            _add_up(losses, target, loss, kept, ignore_index, mean)
    return loss, kept, dx


def _run(input, target, losses, kept, dx, ignore_index, smoothing, z, mean):
    flags = {
        "SMOOTH": smoothing != 0,
        "Z": z != 0,
        "KEEP": kept is not None,
        "GRADIENT": dx is not None,
        "SCALED": mean,
    }
    view = columns_of(input.shape, input.stride())
    if view is not None:
        tensors = (input, target, losses, kept, dx)
        triton_columns.forward(view, tensors, (ignore_index, smoothing, z), flags)
        return
    rows, n, pitch, run, jump, copied = rows_of(input.shape, input.stride())
    tensors = (input.contiguous() if copied else input, target, losses, kept, dx)
    sizes = (rows, n, pitch, run, jump, ignore_index, smoothing, z)
    found = row_blocks(n, input.element_size(), dx is not None)
    if found is not None:
        blocks, warps = found
        _rows_forward[(triton.cdiv(rows, blocks["ROWS"]),)](*tensors, *sizes, **blocks, **flags, num_warps=warps)
        launches["cross_entropy_triton.rows_forward"] += 1
    else:
        blocks, warps = loop_blocks(n, input.element_size(), dx is not None)
        _long_forward[(rows,)](*tensors, *sizes, **blocks, **flags, num_warps=warps)
        launches["cross_entropy_triton.long_forward"] += 1


def _add_up(losses, target, loss, kept, ignore_index, mean):
    """The reduced loss and, into `kept`, the factor that goes with it; without `losses` the factor alone."""
    rows = target.numel()
    programs, steps = total_blocks(rows)
    parts = torch.empty(2 * max(programs, 1), dtype=torch.float32, device=target.device)
    with_loss = losses is not None
    if programs:
        sizes = {"STEPS": steps, "BLOCK": SETTINGS.total_block, "LOSS": with_loss}
        _part[(programs,)](losses, target, parts, rows, ignore_index, **sizes)
    scale = None if kept is None else kept[-1:]
    options = {"MEAN": mean, "LOSS": with_loss, "KEEP": kept is not None}
    _total[(1,)](parts, loss, scale, programs, BLOCK=power_above(max(programs, 2)), **options)
    launches["cross_entropy_triton.total"] += 1 + (programs > 0)


def _backward(grad, input, target, kept, ignore_index, reduction, label_smoothing, z_loss, made=None):
    dx = fresh_gradient(input) if made is None else made
    if not target.numel():
        return dx
    flags = {"Z": z_loss != 0, "EACH": reduction == "none", "MADE": made is not None}
    view = columns_of(input.shape, input.stride())
    if view is not None:
        tensors = (grad.contiguous(), input, target.contiguous(), kept, dx)
        with _on(input):
            triton_columns.gradient(view, tensors, (ignore_index, label_smoothing, z_loss), flags)
        return dx
    rows, n, pitch, run, jump, copied = rows_of(input.shape, input.stride())
    data = input.contiguous() if copied else input
    blocks, warps = gradient_blocks(n)
    programs = triton.cdiv(rows, blocks["ROWS"])
    chunks = triton.cdiv(n, blocks["BLOCK"])
    if made is not None:
        programs = min(programs, max(1, SETTINGS.looks // chunks))
    with _on(input):
        tensors = (grad.contiguous(), data, target.contiguous(), kept, dx)
        sizes = (rows, n, pitch, run, jump, ignore_index, label_smoothing, z_loss)
        _gradient[(programs, chunks)](*tensors, *sizes, **blocks, **flags, num_warps=warps)
    launches["cross_entropy_triton.gradient"] += 1
    return dx


def _on(tensor):
    """Makes the tensor's GPU the current one, where Triton launches; nothing on a CPU."""
    return torch.cuda.device(tensor.device.index if tensor.is_cuda else -1)


def refusal(input, target, ignore_index, reduction, label_smoothing, z_loss) -> str | None:
    """Why this backend does not take the input, or None."""
    return triton_refusal(input) or dtype_refusal(input) or target_refusal(input, target)


cross_entropy = registered("triton", _forward, _backward)
