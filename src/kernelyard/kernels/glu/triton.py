"""Gated linear units in Triton: a tile of rows and columns to a program, one long row where nothing is strided."""

import torch
import triton
import triton.language as tl

from kernelyard.kernels.counters import launches
from kernelyard.kernels.glu.layout import gradients_like, halves, rows_of

# Behind the tensor in a product: Triton's interpreter from 3.7 on makes a constexpr of `LOG2_E * b_x`, whose value is a
# tensor. Compiled it is the same PTX (3.6, sm_90).
LOG2_E = tl.constexpr(1.4426950408889634)

ELEMENTS = 1024
"""Of each tensor, in a program: two vectors a thread. 4096 lose 1 % where all is aligned, and 5 to 70 % at an odd size,
where no more than the program at the end of a row should be without vectors."""
WARPS = 4

_OPERATORS = {"silu": "swiglu", "none": "geglu", "tanh": "geglu"}


@triton.jit
def _curve(b_x, ACTIVATION: tl.constexpr):
    """Value and slope of the activation; activations.cuh says why they are written so."""
    if ACTIVATION == "none":
        b_t = 1 / (1 + 0.34 * tl.abs(b_x))
        b_p = -0.02612047642469406 * b_t + 0.1394995003938675
        b_p = b_p * b_t - 0.2731327712535858
        b_p = b_p * b_t + 0.20218269526958466
        b_p = b_p * b_t - 0.044718462973833084
        b_p = b_p * b_t + 0.11535916477441788
        b_p = b_p * b_t + 0.11519766
        b_p = b_p * b_t + 0.13611219823360443
        b_p = b_p * b_t + 0.13562050461769104
        b_bell = tl.exp2(b_x * (-0.5 * LOG2_E) * b_x)
        b_tail = b_bell * b_t * b_p
        b_phi = tl.where(b_x < 0, b_tail, 1 - b_tail)
        b_value = b_x * b_phi
        b_slope = b_phi + 0.3989422804014327 * b_x * b_bell
    elif ACTIVATION == "tanh":
        b_square = b_x * b_x
        b_s = 1 / (1 + tl.exp2(b_x * (-LOG2_E * 1.5957691216057308) * (1 + 0.044715 * b_square)))
        b_value = b_x * b_s
        b_slope = b_s * (1 + b_x * (1 - b_s) * 1.5957691216057308 * (1 + 0.134145 * b_square))
    else:
        b_s = 1 / (1 + tl.exp2(b_x * -LOG2_E))
        b_value = b_x * b_s
        b_slope = b_s * (1 + b_x * (1 - b_s))
    return b_value, b_slope


@triton.jit
def _tile(M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows and columns of this program, both [ROWS, 1] or [1, BLOCK], and whether all of them exist."""
    tiles = tl.cdiv(N, BLOCK)
    i_m = (tl.program_id(0) // tiles).to(tl.int64) * ROWS
    i_n = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK
    whole = (i_m + ROWS <= M) & (i_n + BLOCK <= N)
    return i_m + tl.arange(0, ROWS)[:, None], i_n + tl.arange(0, BLOCK)[None, :], whole


@triton.jit
def _forward_part(p_gate, p_up, p_y, o_m, o_n, m, N, gate_pitch, up_pitch, ACTIVATION: tl.constexpr):
    b_gate = tl.load(p_gate + o_m * gate_pitch + o_n, mask=m).to(tl.float32)
    b_up = tl.load(p_up + o_m * up_pitch + o_n, mask=m).to(tl.float32)
    b_value, _ = _curve(b_gate, ACTIVATION)
    tl.store(p_y + o_m * N + o_n, (b_value * b_up).to(p_y.dtype.element_ty), mask=m)


@triton.jit
def _forward(
    p_gate,
    p_up,
    p_y,
    M,
    N,
    gate_pitch,
    up_pitch,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    o_m, o_n, whole = _tile(M, N, ROWS, BLOCK)
    # Whole tiles without a mask: with one, an odd size would be moved element by element everywhere.
    if whole:
        _forward_part(p_gate, p_up, p_y, o_m, o_n, None, N, gate_pitch, up_pitch, ACTIVATION)
    else:
        m = (o_m < M) & (o_n < N)
        _forward_part(p_gate, p_up, p_y, o_m, o_n, m, N, gate_pitch, up_pitch, ACTIVATION)


@triton.jit
def _backward_part(
    p_dy, p_gate, p_up, p_dgate, p_dup, o_m, o_n, m, dy_pitch, gate_pitch, up_pitch, out_pitch, ACTIVATION: tl.constexpr
):
    b_dy = tl.load(p_dy + o_m * dy_pitch + o_n, mask=m).to(tl.float32)
    b_gate = tl.load(p_gate + o_m * gate_pitch + o_n, mask=m).to(tl.float32)
    b_up = tl.load(p_up + o_m * up_pitch + o_n, mask=m).to(tl.float32)
    b_value, b_slope = _curve(b_gate, ACTIVATION)
    o = o_m * out_pitch + o_n
    tl.store(p_dgate + o, (b_dy * b_up * b_slope).to(p_dgate.dtype.element_ty), mask=m)
    tl.store(p_dup + o, (b_dy * b_value).to(p_dup.dtype.element_ty), mask=m)


@triton.jit
def _backward(
    p_dy,
    p_gate,
    p_up,
    p_dgate,
    p_dup,
    M,
    N,
    dy_pitch,
    gate_pitch,
    up_pitch,
    out_pitch,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    o_m, o_n, whole = _tile(M, N, ROWS, BLOCK)
    if whole:
        _backward_part(
            p_dy, p_gate, p_up, p_dgate, p_dup, o_m, o_n, None, dy_pitch, gate_pitch, up_pitch, out_pitch, ACTIVATION
        )
    else:
        m = (o_m < M) & (o_n < N)
        _backward_part(
            p_dy, p_gate, p_up, p_dgate, p_dup, o_m, o_n, m, dy_pitch, gate_pitch, up_pitch, out_pitch, ACTIVATION
        )


def forward(activation: str, gate: torch.Tensor, up: torch.Tensor | None) -> torch.Tensor:
    """activation(gate) * up, contiguous; where `up` is None, of the halves of `gate`."""
    left, right = halves(gate, up)
    y = torch.empty_like(left, memory_format=torch.contiguous_format)
    if y.numel():
        data, pitches, rows, columns = rows_of(left, right)
        _run(_forward, activation, "forward", (*data, y), pitches, rows, columns)
    return y


def backward(
    activation: str, dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of gate and up; where `up` is None, that of the packed gate and an empty tensor."""
    dgate, dup = gradients_like(gate, up)
    if dy.numel():
        data, pitches, rows, columns = rows_of(dy, *halves(gate, up), *halves(dgate, dup))
        _run(_backward, activation, "backward", tuple(data), pitches[:4], rows, columns)
    return dgate, dup


def _run(kernel, activation, direction, tensors, pitches, rows, columns):
    block = min(triton.next_power_of_2(columns), ELEMENTS)
    held = ELEMENTS // block if rows > 1 else 1
    grid = (triton.cdiv(rows, held) * triton.cdiv(columns, block),)
    like = tensors[0]
    with torch.cuda.device(like.device.index if like.is_cuda else -1):
        kernel[grid](*tensors, rows, columns, *pitches, ACTIVATION=activation, ROWS=held, BLOCK=block, num_warps=WARPS)
    launches[f"{_OPERATORS[activation]}_triton.{direction}"] += 1
