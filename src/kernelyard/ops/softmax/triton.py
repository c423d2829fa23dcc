"""The Triton rung: a row in one program's registers, read in a loop where it is longer, split where rows are few."""

import torch
import triton
import triton.language as tl

from kernelyard.kernels.counters import launches
from kernelyard.kernels.layout import Rows, along
from kernelyard.kernels.support import dtype_refusal, triton_refusal
from kernelyard.ops.softmax.derivative import registered
from kernelyard.ops.softmax.triton_settings import SETTINGS, column_blocks, row_blocks, split_blocks

# Loop bounds are constants, because the interpreter of Triton 3.6 cannot read one from an argument under NumPy 2.4.
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def _normalised(b_x, axis: tl.constexpr):
    b_e = tl.exp(b_x - tl.expand_dims(tl.max(b_x, axis), axis))
    return b_e / tl.expand_dims(tl.sum(b_e, axis), axis)


@triton.jit
def _gradient(b_dy, b_y, axis: tl.constexpr):
    return b_y * (b_dy - tl.expand_dims(tl.sum(b_dy * b_y, axis), axis))


@triton.jit
def _take(b_m, b_s, b_x):
    """Online, lane by lane: a running maximum and the sum of exp(x - maximum), with one exponential per element."""
    b_above = b_x - b_m
    b_e = tl.exp(-tl.abs(b_above))
    return tl.maximum(b_m, b_x), tl.where(b_above > 0, b_s * b_e + 1, b_s + b_e)


@triton.jit
def _rows_forward(p_x, p_y, M, N, pitch, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    i_read = tl.minimum(i_row, M - 1)
    o_n = tl.arange(0, BLOCK)[None, :]
    b_x = tl.load(p_x + i_read * pitch + o_n, mask=o_n < N, other=float("-inf")).to(tl.float32)
    b_y = _normalised(b_x, 1)
    tl.store(p_y + i_row * N + o_n, b_y.to(p_y.dtype.element_ty), mask=(i_row < M) & (o_n < N))


@triton.jit
def _rows_backward(p_dy, p_y, p_dx, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    o_n = tl.arange(0, BLOCK)[None, :]
    o = i_row * N + o_n
    m = (i_row < M) & (o_n < N)
    b_dy = tl.load(p_dy + o, mask=m, other=0).to(tl.float32)
    b_y = tl.load(p_y + o, mask=m, other=0).to(tl.float32)
    tl.store(p_dx + o, _gradient(b_dy, b_y, 1).to(p_dx.dtype.element_ty), mask=m)


@triton.jit
def _long_forward(p_x, p_y, N, pitch, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    p_x += i_row * pitch
    p_y += i_row * N
    o_n = tl.arange(0, BLOCK)
    b_m = tl.full([BLOCK], LOWEST, tl.float32)
    b_s = tl.zeros([BLOCK], tl.float32)
    for i in range(BLOCKS):
        o = i * BLOCK + o_n
        b_x = tl.load(p_x + o, mask=o < N, other=float("-inf"), eviction_policy="evict_last")
        b_m, b_s = _take(b_m, b_s, b_x.to(tl.float32))
    top = tl.max(b_m, 0)
    total = tl.sum(b_s * tl.exp(b_m - top), 0)
    # Backwards: what was read last is still in L2.
    for i in range(BLOCKS):
        o = (BLOCKS - 1 - i) * BLOCK + o_n
        b_x = tl.load(p_x + o, mask=o < N, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)
        tl.store(p_y + o, (tl.exp(b_x - top) / total).to(p_y.dtype.element_ty), mask=o < N)


@triton.jit
def _long_backward(p_dy, p_y, p_dx, N, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64) * N
    p_dy += i_row
    p_y += i_row
    p_dx += i_row
    o_n = tl.arange(0, BLOCK)
    b_dot = tl.zeros([BLOCK], tl.float32)
    for i in range(BLOCKS):
        o = i * BLOCK + o_n
        b_dy = tl.load(p_dy + o, mask=o < N, other=0, eviction_policy="evict_last").to(tl.float32)
        b_dot += b_dy * tl.load(p_y + o, mask=o < N, other=0, eviction_policy="evict_last").to(tl.float32)
    dot = tl.sum(b_dot, 0)
    for i in range(BLOCKS):
        o = (BLOCKS - 1 - i) * BLOCK + o_n
        b_dy = tl.load(p_dy + o, mask=o < N, other=0, eviction_policy="evict_first").to(tl.float32)
        b_y = tl.load(p_y + o, mask=o < N, other=0, eviction_policy="evict_first").to(tl.float32)
        tl.store(p_dx + o, (b_y * (b_dy - dot)).to(p_dx.dtype.element_ty), mask=o < N)


@triton.jit
def _split_forward_part(p_x, p_m, p_s, N, pitch, TILES: tl.constexpr, BLOCK: tl.constexpr):
    i_chunk, i_row = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    b_m = tl.full([BLOCK], LOWEST, tl.float32)
    b_s = tl.zeros([BLOCK], tl.float32)
    for i in range(TILES):
        o = (i_chunk * TILES + i) * BLOCK + tl.arange(0, BLOCK)
        b_x = tl.load(p_x + i_row * pitch + o, mask=o < N, other=float("-inf"), eviction_policy="evict_last")
        b_m, b_s = _take(b_m, b_s, b_x.to(tl.float32))
    top = tl.max(b_m, 0)
    i_part = i_row * tl.num_programs(0) + i_chunk
    tl.store(p_m + i_part, top)
    tl.store(p_s + i_part, tl.sum(b_s * tl.exp(b_m - top), 0))


@triton.jit
def _split_forward_write(p_x, p_y, p_m, p_s, N, pitch, TILES: tl.constexpr, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    chunks = tl.num_programs(0)
    i_chunk, i_row = (chunks - 1 - tl.program_id(0)).to(tl.int64), tl.program_id(1).to(tl.int64)
    o_part = tl.arange(0, CHUNKS)
    b_m = tl.load(p_m + i_row * chunks + o_part, mask=o_part < chunks, other=LOWEST)
    b_s = tl.load(p_s + i_row * chunks + o_part, mask=o_part < chunks, other=0)
    top = tl.max(b_m, 0)
    total = tl.sum(b_s * tl.exp(b_m - top), 0)
    for i in range(TILES):
        o = (i_chunk * TILES + TILES - 1 - i) * BLOCK + tl.arange(0, BLOCK)
        b_x = tl.load(p_x + i_row * pitch + o, mask=o < N, other=float("-inf"), eviction_policy="evict_first")
        b_y = tl.exp(b_x.to(tl.float32) - top) / total
        tl.store(p_y + i_row * N + o, b_y.to(p_y.dtype.element_ty), mask=o < N)


@triton.jit
def _split_backward_part(p_dy, p_y, p_dot, N, TILES: tl.constexpr, BLOCK: tl.constexpr):
    i_chunk, i_row = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    b_dot = tl.zeros([BLOCK], tl.float32)
    for i in range(TILES):
        o_n = (i_chunk * TILES + i) * BLOCK + tl.arange(0, BLOCK)
        o = i_row * N + o_n
        b_dy = tl.load(p_dy + o, mask=o_n < N, other=0, eviction_policy="evict_last").to(tl.float32)
        b_dot += b_dy * tl.load(p_y + o, mask=o_n < N, other=0, eviction_policy="evict_last").to(tl.float32)
    tl.store(p_dot + i_row * tl.num_programs(0) + i_chunk, tl.sum(b_dot, 0))


@triton.jit
def _split_backward_write(p_dy, p_y, p_dx, p_dot, N, TILES: tl.constexpr, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    chunks = tl.num_programs(0)
    i_chunk, i_row = (chunks - 1 - tl.program_id(0)).to(tl.int64), tl.program_id(1).to(tl.int64)
    o_part = tl.arange(0, CHUNKS)
    dot = tl.sum(tl.load(p_dot + i_row * chunks + o_part, mask=o_part < chunks, other=0), 0)
    for i in range(TILES):
        o_n = (i_chunk * TILES + TILES - 1 - i) * BLOCK + tl.arange(0, BLOCK)
        o = i_row * N + o_n
        b_dy = tl.load(p_dy + o, mask=o_n < N, other=0, eviction_policy="evict_first").to(tl.float32)
        b_y = tl.load(p_y + o, mask=o_n < N, other=0, eviction_policy="evict_first").to(tl.float32)
        tl.store(p_dx + o, (b_y * (b_dy - dot)).to(p_dx.dtype.element_ty), mask=o_n < N)


@triton.jit
def _column_offsets(N, K, BLOCK_K: tl.constexpr):
    """Offset of row 0 of this program's columns, and which of the columns exist."""
    blocks = tl.cdiv(K, BLOCK_K)
    i_outer = (tl.program_id(0) // blocks).to(tl.int64)
    o_k = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    return i_outer * N * K + o_k, o_k < K


@triton.jit
def _columns_forward(
    p_x, p_y, N, K, STEPS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, HELD: tl.constexpr
):
    o_0, m_k = _column_offsets(N, K, BLOCK_K)
    o_n = tl.arange(0, BLOCK_N)[:, None].to(tl.int64)
    if HELD:
        o = o_0 + o_n * K
        b_x = tl.load(p_x + o, mask=(o_n < N) & m_k, other=float("-inf")).to(tl.float32)
        b_x = tl.where(m_k, b_x, 0)
        tl.store(p_y + o, _normalised(b_x, 0).to(p_y.dtype.element_ty), mask=(o_n < N) & m_k)
    else:
        b_m = tl.full([BLOCK_N, BLOCK_K], LOWEST, tl.float32)
        b_s = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
        for i in range(0, STEPS * BLOCK_N, BLOCK_N):
            b_x = tl.load(p_x + o_0 + (i + o_n) * K, mask=(i + o_n < N) & m_k, other=float("-inf"))
            b_m, b_s = _take(b_m, b_s, b_x.to(tl.float32))
        b_top = tl.max(b_m, 0)[None, :]
        b_total = tl.sum(b_s * tl.exp(b_m - b_top), 0)[None, :]
        for i in range(0, STEPS * BLOCK_N, BLOCK_N):
            m = (i + o_n < N) & m_k
            b_x = tl.load(p_x + o_0 + (i + o_n) * K, mask=m, other=0).to(tl.float32)
            b_y = tl.exp(b_x - b_top) / b_total
            tl.store(p_y + o_0 + (i + o_n) * K, b_y.to(p_y.dtype.element_ty), mask=m)


@triton.jit
def _columns_backward(
    p_dy, p_y, p_dx, N, K, STEPS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, HELD: tl.constexpr
):
    o_0, m_k = _column_offsets(N, K, BLOCK_K)
    o_n = tl.arange(0, BLOCK_N)[:, None].to(tl.int64)
    if HELD:
        o = o_0 + o_n * K
        m = (o_n < N) & m_k
        b_dy = tl.load(p_dy + o, mask=m, other=0).to(tl.float32)
        b_y = tl.load(p_y + o, mask=m, other=0).to(tl.float32)
        tl.store(p_dx + o, _gradient(b_dy, b_y, 0).to(p_dx.dtype.element_ty), mask=m)
    else:
        b_dot = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
        for i in range(0, STEPS * BLOCK_N, BLOCK_N):
            m = (i + o_n < N) & m_k
            b_dy = tl.load(p_dy + o_0 + (i + o_n) * K, mask=m, other=0).to(tl.float32)
            b_dot += b_dy * tl.load(p_y + o_0 + (i + o_n) * K, mask=m, other=0).to(tl.float32)
        b_total = tl.sum(b_dot, 0)[None, :]
        for i in range(0, STEPS * BLOCK_N, BLOCK_N):
            m = (i + o_n < N) & m_k
            b_dy = tl.load(p_dy + o_0 + (i + o_n) * K, mask=m, other=0).to(tl.float32)
            b_y = tl.load(p_y + o_0 + (i + o_n) * K, mask=m, other=0).to(tl.float32)
            tl.store(p_dx + o_0 + (i + o_n) * K, (b_y * (b_dy - b_total)).to(p_dx.dtype.element_ty), mask=m)


def _forward(x: torch.Tensor, dim: int) -> torch.Tensor:
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel() == 0:
        return y
    view = along(x, dim)
    data, outer, n, inner, pitch = view
    with _on(data):
        if inner > 1:
            blocks, warps = column_blocks(n, inner)
            grid = (outer * triton.cdiv(inner, blocks["BLOCK_K"]),)
            if not blocks["HELD"] and grid[0] < SETTINGS.few_columns:
                return _forward(data.movedim(dim, -1).contiguous(), -1).movedim(-1, dim).contiguous()
            _columns_forward[grid](data, y, n, inner, **blocks, num_warps=warps)
            launches["softmax_triton.columns_forward"] += 1
        elif _is_split(view):
            chunks, tiles, batch = split_blocks(n, data.element_size())
            parts = torch.empty(2, batch, chunks, dtype=torch.float32, device=data.device)
            x_rows, y_rows = data.as_strided((outer, n), (pitch, 1)), y.view(outer, n)
            for first in range(0, outer, batch):
                pair = (chunks, min(batch, outer - first))
                p_x, p_y = x_rows[first:], y_rows[first:]
                sizes = {"BLOCK": SETTINGS.split_block, "num_warps": SETTINGS.split_warps}
                _split_forward_part[pair](p_x, parts[0], parts[1], n, pitch, TILES=tiles, **sizes)
                sizes["CHUNKS"] = triton.next_power_of_2(chunks)
                _split_forward_write[pair](p_x, p_y, parts[0], parts[1], n, pitch, TILES=tiles, **sizes)
                launches["softmax_triton.split_forward"] += 2
        elif n > SETTINGS.row_elements:
            _long_forward[(outer,)](
                data,
                y,
                n,
                pitch,
                BLOCKS=triton.cdiv(n, SETTINGS.loop_block),
                BLOCK=SETTINGS.loop_block,
                num_warps=SETTINGS.loop_warps,
            )
            launches["softmax_triton.long_forward"] += 1
        else:
            blocks, warps = row_blocks(n)
            grid = (triton.cdiv(outer, blocks["ROWS"]),)
            _rows_forward[grid](data, y, outer, n, pitch, **blocks, num_warps=warps)
            launches["softmax_triton.rows_forward"] += 1
    return y


def _backward(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    dx = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    if y.numel() == 0:
        return dx
    dy, view = dy.contiguous(), along(y.contiguous(), dim)
    y, outer, n, inner, _ = view
    with _on(y):
        if inner > 1:
            blocks, warps = column_blocks(n, inner)
            grid = (outer * triton.cdiv(inner, blocks["BLOCK_K"]),)
            if not blocks["HELD"] and grid[0] < SETTINGS.few_columns:
                turned = _backward(dy.movedim(dim, -1).contiguous(), y.movedim(dim, -1).contiguous(), -1)
                return turned.movedim(-1, dim).contiguous()
            _columns_backward[grid](dy, y, dx, n, inner, **blocks, num_warps=warps)
            launches["softmax_triton.columns_backward"] += 1
        elif _is_split(view):
            chunks, tiles, batch = split_blocks(n, y.element_size())
            dots = torch.empty(batch, chunks, dtype=torch.float32, device=y.device)
            dy_rows, y_rows, dx_rows = dy.view(outer, n), y.view(outer, n), dx.view(outer, n)
            for first in range(0, outer, batch):
                pair = (chunks, min(batch, outer - first))
                p_dy, p_y, p_dx = dy_rows[first:], y_rows[first:], dx_rows[first:]
                sizes = {"BLOCK": SETTINGS.split_block, "num_warps": SETTINGS.split_warps}
                _split_backward_part[pair](p_dy, p_y, dots, n, TILES=tiles, **sizes)
                sizes["CHUNKS"] = triton.next_power_of_2(chunks)
                _split_backward_write[pair](p_dy, p_y, p_dx, dots, n, TILES=tiles, **sizes)
                launches["softmax_triton.split_backward"] += 2
        elif n > SETTINGS.row_elements:
            _long_backward[(outer,)](
                dy,
                y,
                dx,
                n,
                BLOCKS=triton.cdiv(n, SETTINGS.loop_block),
                BLOCK=SETTINGS.loop_block,
                num_warps=SETTINGS.loop_warps,
            )
            launches["softmax_triton.long_backward"] += 1
        else:
            blocks, warps = row_blocks(n)
            grid = (triton.cdiv(outer, blocks["ROWS"]),)
            _rows_backward[grid](dy, y, dx, outer, n, **blocks, num_warps=warps)
            launches["softmax_triton.rows_backward"] += 1
    return dx


def _is_split(view: Rows) -> bool:
    """Whether programs of one row each would leave the chip idle."""
    return view.length > SETTINGS.row_elements and view.outer < SETTINGS.few_rows


def _on(tensor: torch.Tensor) -> torch.cuda.device:
    """Makes the tensor's GPU the current one, where Triton launches; nothing on a CPU."""
    return torch.cuda.device(tensor.device.index if tensor.is_cuda else -1)


def refusal(x: torch.Tensor, dim: int) -> str | None:
    """Why this backend does not take the input, or None."""
    return triton_refusal(x) or dtype_refusal(x)


softmax = registered("triton", _forward, _backward)
