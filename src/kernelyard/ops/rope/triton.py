"""The Triton rung: a tile of tokens and heads to a program, q and k in one launch."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kernelyard.kernels.counters import launches
from kernelyard.kernels.support import triton_refusal
from kernelyard.ops.rope.derivative import registered
from kernelyard.ops.rope.layout import by_token, learned_refusal, readable, refusal_of_dtypes, tables


@dataclass(frozen=True)
class Settings:
    """How the kernel is launched."""

    elements: int = 1024
    """Of q or k in a program: one or two vectors a thread. 4096 loses 1 to 3 %."""
    heads: int = 1
    """Most heads of a program where tokens are neighbours in memory; 2 or 4, which share their tables, lose 1 %."""
    warps: int = 4
    table_bytes: int = 1 << 20
    """Of cos, and of sin, that a chunk of tokens reads again for other heads and batches; plan.py has the numbers."""


SETTINGS = Settings()


@triton.jit
def _turn(b_1, b_2, b_c1, b_c2, b_s1, b_s2, BACK: tl.constexpr):
    b_1, b_2, b_c1, b_c2 = b_1.to(tl.float32), b_2.to(tl.float32), b_c1.to(tl.float32), b_c2.to(tl.float32)
    b_s1, b_s2 = b_s1.to(tl.float32), b_s2.to(tl.float32)
    if BACK:
        b_y1, b_y2 = b_1 * b_c1 + b_2 * b_s2, b_2 * b_c2 - b_1 * b_s1
    else:
        b_y1, b_y2 = b_1 * b_c1 - b_2 * b_s1, b_2 * b_c2 + b_1 * b_s2
    return b_y1, b_y2


@triton.jit
def _heads(
    p_x,
    p_y,
    p_cos,
    p_sin,
    i_h,
    H,
    head,
    y_head,
    m_t,
    R: tl.constexpr,
    D: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BACK: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    """HEADS heads from i_h on; the pointers are [TOKENS, 1, 1] and stand at their tokens."""
    o_h = i_h + tl.arange(0, HEADS)[None, :, None]
    m_h = m_t & (o_h < H)
    p_x += o_h.to(tl.int64) * head
    p_y += o_h.to(tl.int64) * y_head
    if INTERLEAVED:
        o_d = tl.arange(0, 2 * HALF)[None, None, :]
        m, m_c = m_h & (o_d < R), m_t & (o_d < R)
        b_x = tl.load(p_x + o_d, mask=m)
        b_c, b_s = tl.load(p_cos + o_d, mask=m_c), tl.load(p_sin + o_d, mask=m_c)
        TOKENS: tl.constexpr = m_t.shape[0]
        b_1, b_2 = tl.split(tl.reshape(b_x, [TOKENS, HEADS, HALF, 2]))
        b_c1, b_c2 = tl.split(tl.reshape(b_c, [TOKENS, 1, HALF, 2]))
        b_s1, b_s2 = tl.split(tl.reshape(b_s, [TOKENS, 1, HALF, 2]))
        b_y1, b_y2 = _turn(b_1, b_2, b_c1, b_c2, b_s1, b_s2, BACK)
        b_y = tl.reshape(tl.join(b_y1, b_y2), [TOKENS, HEADS, 2 * HALF])
        tl.store(p_y + o_d, b_y.to(p_y.dtype.element_ty), mask=m)
    else:
        o_d = tl.arange(0, HALF)[None, None, :]
        m, m_c = m_h & (o_d < R // 2), m_t & (o_d < R // 2)
        b_1, b_2 = tl.load(p_x + o_d, mask=m), tl.load(p_x + R // 2 + o_d, mask=m)
        b_c1, b_c2 = tl.load(p_cos + o_d, mask=m_c), tl.load(p_cos + R // 2 + o_d, mask=m_c)
        b_s1, b_s2 = tl.load(p_sin + o_d, mask=m_c), tl.load(p_sin + R // 2 + o_d, mask=m_c)
        b_y1, b_y2 = _turn(b_1, b_2, b_c1, b_c2, b_s1, b_s2, BACK)
        tl.store(p_y + o_d, b_y1.to(p_y.dtype.element_ty), mask=m)
        tl.store(p_y + R // 2 + o_d, b_y2.to(p_y.dtype.element_ty), mask=m)
    if REST > 0:
        o_r = R + tl.arange(0, REST)[None, None, :]
        m_r = m_h & (o_r < D)
        tl.store(p_y + o_r, tl.load(p_x + o_r, mask=m_r), mask=m_r)


@triton.jit
def _rotate_kernel(
    p_q,
    p_k,
    p_cos,
    p_sin,
    p_to_q,
    p_to_k,
    TILES,
    B,
    T,
    Q_HEADS,
    K_HEADS,
    q_batch,
    q_head,
    q_token,
    k_batch,
    k_head,
    k_token,
    to_q_batch,
    to_q_head,
    to_q_token,
    to_k_batch,
    to_k_head,
    to_k_token,
    table_batch,
    table_token,
    R: tl.constexpr,
    D: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BACK: tl.constexpr,
    HEADS_FIRST: tl.constexpr,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
):
    q_groups = tl.cdiv(Q_HEADS, HEADS)
    groups = q_groups + tl.cdiv(K_HEADS, HEADS)
    # Programs follow one another as memory does, heads or tokens first, within a chunk of tokens.
    if HEADS_FIRST:
        i_group, i_tile = tl.program_id(0) % groups, tl.program_id(0) // groups % TILES
    else:
        i_group, i_tile = tl.program_id(0) // TILES % groups, tl.program_id(0) % TILES
    i_rest = tl.program_id(0) // (groups * TILES)
    i_b = (i_rest % B).to(tl.int64)
    o_t = ((i_rest // B).to(tl.int64) * TILES + i_tile) * TOKENS + tl.arange(0, TOKENS)[:, None, None]
    m_t = o_t < T
    p_cos += i_b * table_batch + o_t * table_token
    p_sin += i_b * table_batch + o_t * table_token
    if i_group < q_groups:
        p_x, p_y = p_q + i_b * q_batch + o_t * q_token, p_to_q + i_b * to_q_batch + o_t * to_q_token
        i_h = i_group * HEADS
        _heads(p_x, p_y, p_cos, p_sin, i_h, Q_HEADS, q_head, to_q_head, m_t, R, D, INTERLEAVED, BACK, HEADS, HALF, REST)
    else:
        p_x, p_y = p_k + i_b * k_batch + o_t * k_token, p_to_k + i_b * to_k_batch + o_t * to_k_token
        i_h = (i_group - q_groups) * HEADS
        _heads(p_x, p_y, p_cos, p_sin, i_h, K_HEADS, k_head, to_k_head, m_t, R, D, INTERLEAVED, BACK, HEADS, HALF, REST)


def _rotate(
    xs: list[torch.Tensor],
    ys: list[torch.Tensor],
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool,
    back: bool,
) -> None:
    xs = [readable(x) for x in xs]
    cos, sin, table_strides = tables(cos, sin)
    first, last = xs[0], xs[-1]
    q_heads, k_heads = first.shape[1], last.shape[1] if len(xs) > 1 else 0
    batches, _, tokens, width = first.shape
    rotated = cos.shape[-1]
    row = triton.next_power_of_2(width)
    held = max(1, SETTINGS.elements // row)
    together = by_token(first) or tokens == 1
    most = held if together else min(held, SETTINGS.heads)
    # As many heads as divide both, so that no program is half empty: 8 for 32 and 8.
    heads = next(n for n in (64, 32, 16, 8, 4, 2, 1) if n <= most and q_heads % n == 0 and k_heads % n == 0)
    held = min(triton.next_power_of_2(tokens), max(1, held // heads))
    groups = triton.cdiv(q_heads, heads) + triton.cdiv(k_heads, heads)
    tiles = triton.cdiv(tokens, held)
    tiles = max(1, min(tiles, SETTINGS.table_bytes // max(rotated * cos.element_size() * held, 1)))
    grid = (groups * batches * tiles * triton.cdiv(tokens, held * tiles),)
    strides = [stride for x in (first, last, ys[0], ys[-1]) for stride in x.stride()[:3]]
    with torch.cuda.device(first.device.index if first.is_cuda else -1):
        _rotate_kernel[grid](
            first,
            last,
            cos,
            sin,
            ys[0],
            ys[-1],
            tiles,
            batches,
            tokens,
            q_heads,
            k_heads,
            *strides,
            *table_strides,
            R=rotated,
            D=width,
            INTERLEAVED=interleaved,
            BACK=back,
            HEADS_FIRST=together,
            TOKENS=held,
            HEADS=heads,
            HALF=max(1, triton.next_power_of_2(rotated) // 2),
            REST=triton.next_power_of_2(width - rotated) if width > rotated else 0,
            num_warps=SETTINGS.warps,
        )
    launches[f"rope_triton.{'backward' if back else 'forward'}"] += 1


def refusal(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> str | None:
    """Why this backend does not take the input, or None."""
    return triton_refusal(q) or refusal_of_dtypes(q, k, cos, sin) or learned_refusal(cos, sin)


rope = registered("triton", _rotate)
