"""How logits of any layout look to a kernel: rows one or two distances apart, or columns of an outer x inner grid."""

from math import prod
from typing import NamedTuple


class Rows(NamedTuple):
    """`rows` rows of `length` adjacent classes.

    Rows lie `pitch` elements apart; where `run` is less than `rows`, that holds for the rows of a run, and the runs lie
    `jump` apart: `logits[:, :-1]` of a language model.
    """

    rows: int
    length: int
    pitch: int
    run: int
    jump: int
    copied: bool
    """The layout is none of these: what is described is a contiguous copy."""


def rows_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> Rows:
    """Describe logits (..., C) of at least one row and one class."""
    length, rows = shape[-1], 1
    levels: list[tuple[int, int]] = []
    for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        rows *= size
        if size == 1:
            continue
        if levels and stride == levels[-1][0] * levels[-1][1]:
            levels[-1] = (levels[-1][0] * size, levels[-1][1])
        else:
            levels.append((size, stride))
    if len(levels) > 2 or (strides[-1] != 1 and length != 1):
        return Rows(rows, length, length, rows, 0, True)
    run, pitch = levels[0] if levels else (1, length)
    return Rows(rows, length, pitch, run, levels[1][1] if len(levels) == 2 else 0, False)


class Columns(NamedTuple):
    """`outer` x `length` x `inner` adjacent elements with the classes in the middle: an image's (N, C, H, W).

    There are `outer` x `inner` rows, those of a pixel each.
    """

    outer: int
    length: int
    inner: int

    @property
    def rows(self) -> int:
        return self.outer * self.inner


MOST_CLASSES = 1 << 20
"""That are read where they lie: a grid of Triton's has 65535 chunks of 32 along them."""


def _is_one(size: int) -> bool:
    """Under a compiler a size may be unknown, and to ask whether it is one ends its graph; of known ones it is told."""
    return isinstance(size, int) and size == 1


def columns_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> Columns | None:
    """Describe logits (..., C) whose classes lie apart and leave no gaps; None for any other, and for very many."""
    if strides[-1] == 1 or _is_one(shape[-1]) or (isinstance(shape[-1], int) and shape[-1] > MOST_CLASSES):
        return None
    inner, before = 1, len(shape) - 1
    while before and (_is_one(shape[before - 1]) or strides[before - 1] == inner):
        inner *= shape[before - 1]
        before -= 1
    if strides[-1] != inner:
        return None
    expected = inner * shape[-1]
    for size, stride in zip(reversed(shape[:before]), reversed(strides[:before]), strict=True):
        if not _is_one(size) and stride != expected:
            return None
        expected *= size
    return Columns(prod(shape[:before]), shape[-1], inner)


def gradient_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Those of a gradient: the logits' own where classes lie apart and leave no gaps, else adjacent classes."""
    if columns_of(shape, strides) is not None:
        return strides
    made, step = [], 1
    for size in reversed(shape):
        made.append(step)
        step *= size
    return tuple(reversed(made))
