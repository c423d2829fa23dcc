"""The CUDA C++ rung: rope.cu, specialised for the heads' size and the order of memory."""

from pathlib import Path

import torch

from kernelyard.kernels.launch import Bound, Launcher
from kernelyard.kernels.plans import VECTOR
from kernelyard.kernels.prepared import Prepared
from kernelyard.kernels.support import TYPES, cuda_refusal
from kernelyard.ops.rope.derivative import registered
from kernelyard.ops.rope.layout import by_token, learned_refusal, readable, refusal_of_dtypes, tables
from kernelyard.ops.rope.plan import plan

WIDEST = 2048
"""Largest head: 1024 threads of one pair each."""

_prepared = Prepared()


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
    heads = [first.shape[1], last.shape[1] if len(xs) > 1 else 0]
    tensors = (first, last, cos, sin, ys[0], ys[-1])
    strides = [stride for x in (first, last, ys[0], ys[-1]) for stride in x.stride()[:3]]
    addresses = tuple([tensor.data_ptr() for tensor in tensors])
    vec = _vector(first, cos, interleaved, addresses, strides, table_strides)
    key = (
        back,
        interleaved,
        first.dtype,
        cos.dtype,
        first.device.index,
        vec,
        first.shape,
        cos.shape[-1],
        *heads,
        *strides,
        *table_strides,
    )
    launch = _prepared.get(key) or _prepared.keep(
        key, _bind(first, cos, heads, strides, table_strides, interleaved, back, vec)
    )
    launch(*addresses)


def _vector(
    x: torch.Tensor,
    cos: torch.Tensor,
    interleaved: bool,
    addresses: tuple[int, ...],
    strides: list[int],
    table_strides: tuple[int, int],
) -> int:
    """Elements of the widest vector that divides what is rotated and what is not, and that all tensors allow."""
    size, table_size = x.element_size(), cos.element_size()
    width, rotated = x.shape[-1], cos.shape[-1]
    vec = VECTOR // size
    while vec > 1 and (
        rotated % (2 * vec)
        or (width - rotated) % (2 * vec)
        or any(stride % vec for stride in strides)
        or any(addresses[i] % (vec * size) for i in (0, 1, 4, 5))
        or any(addresses[i] % min(VECTOR, vec * table_size) for i in (2, 3))
        or any(stride % min(VECTOR // table_size, vec) for stride in table_strides)
    ):
        vec //= 2
    return vec


def _bind(
    x: torch.Tensor,
    cos: torch.Tensor,
    heads: list[int],
    strides: list[int],
    table_strides: tuple[int, int],
    interleaved: bool,
    back: bool,
    vec: int,
) -> Bound:
    batches, _, tokens, width = x.shape
    chosen = plan(vec, width, sum(heads), tokens, by_token(x), cos.element_size() > x.element_size())
    direction = "backward" if back else "forward"
    launcher = Launcher(
        f"rope_cuda.{direction}",
        Path(__file__).with_name("rope.cu"),
        f"rope_{direction}",
        (
            ("TYPE", TYPES[x.dtype]),
            ("TABLE", TYPES[cos.dtype]),
            ("WIDTH", width),
            ("ROTATED", cos.shape[-1]),
            ("INTERLEAVED", int(interleaved)),
            *chosen.macros,
        ),
        device=x.device,
        threads=chosen.threads,
    )
    groups = chosen.groups(sum(heads))
    tiles = chosen.tiles(tokens, cos.shape[-1] * cos.element_size())
    grid = groups * batches * tiles * -(-tokens // (chosen.tokens * tiles))
    return launcher.bind(grid, 6, groups, tiles, batches, tokens, heads[0], sum(heads), *strides, *table_strides)


def refusal(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> str | None:
    """Why this backend does not take the input, or None."""
    if q.shape[-1] > WIDEST:
        return f"takes heads of up to {WIDEST} elements, not {q.shape[-1]}"
    return cuda_refusal(q) or refusal_of_dtypes(q, k, cos, sin) or learned_refusal(cos, sin)


rope = registered("cuda", _rotate)
