"""How a tensor looks to a kernel that works along one dim: rows, or columns of an outer x inner grid."""

from typing import NamedTuple

import torch


class Rows(NamedTuple):
    """`outer` x `length` x `inner` elements of `data`, worked on along `length`; `inner` has stride 1.

    With `inner == 1` a row's elements are adjacent and rows lie `pitch` elements apart. Otherwise all of it
    is contiguous.
    """

    data: torch.Tensor
    outer: int
    length: int
    inner: int
    pitch: int


def along(x: torch.Tensor, dim: int) -> Rows:
    """View a non-empty tensor along `dim`, copying where no kernel reads the layout well.

    Raises IndexError for a dim the tensor does not have, as torch does.
    """
    rank = x.dim()
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(f"dim {dim} is out of range for a tensor of {rank} dims")
    if dim in (-1, rank - 1) and rank and x.is_contiguous():
        length = x.shape[-1]
        return Rows(x, x.numel() // length, length, 1, length)
    if rank == 0:
        return Rows(x, 1, 1, 1, 1)
    shape = x.shape
    dim %= rank
    length = shape[dim]
    if dim == rank - 1:
        pitch = _row_pitch(x)
        if pitch is not None:
            return Rows(x, x.numel() // length, length, 1, pitch)
    x = x.contiguous()
    inner = 1
    for size in shape[dim + 1 :]:
        inner *= size
    return Rows(x, x.numel() // (length * inner), length, inner, length)


def _row_pitch(x: torch.Tensor) -> int | None:
    """The one distance between neighbouring rows of the last dim, or None where there is no such distance."""
    strides = x.stride()
    if strides[-1] != 1 and x.shape[-1] != 1:
        return None
    pitch = expected = None
    for size, stride in zip(reversed(x.shape[:-1]), reversed(strides[:-1]), strict=True):
        if size == 1:
            continue
        if pitch is None:
            pitch = stride
        elif stride != expected:
            return None
        expected = stride * size
    return x.shape[-1] if pitch is None else pitch
