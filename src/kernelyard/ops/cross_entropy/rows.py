"""How logits of any layout look to a kernel: rows that lie one or two distances apart."""

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
