"""How the backward kernels of the norms are launched, and why. Percentages are of a copy of the least bytes."""

from dataclasses import dataclass
from functools import cache

from kernelyard.kernels.nvrtc import Defines

VECTOR = 16
"""Bytes of the widest load."""


@dataclass(frozen=True)
class SplitPlan:
    """Two reads: `chunks` CTAs to a row or column for its sums, then `parts` CTAs to a tile of elements."""

    vec: int
    threads: int
    rows: bool
    chunks: int
    parts: int

    @property
    def macros(self) -> Defines:
        return (("VEC", self.vec), ("THREADS", self.threads))


@dataclass(frozen=True)
class FinishPlan:
    """32 columns to a CTA, whose warps share the parts out: enough of them that a thread adds up about 8."""

    threads: int

    @property
    def macros(self) -> Defines:
        return (("VEC", 1), ("THREADS", self.threads))


@cache
def finish(parts: int) -> FinishPlan:
    """The plan for the sum of `parts` rows."""
    return FinishPlan(32 * min(32, _power_above(-(-parts // 8))))


@cache
def split_rows(rows: int, length: int, vec: int, processors: int) -> SplitPlan:
    """The plan for rows of `length` elements, `vec` of which are loaded at once."""
    threads = min(256, max(32, _power_above(-(-length // vec))))
    tiles = -(-length // (threads * vec))
    # About 8 CTAs to a processor in both kernels; no more chunks than tiles, of which each thread takes 4 or more.
    chunks = max(1, min(-(-tiles // 4), -(-8 * processors // rows)))
    parts = max(1, min(-(-rows // 4), -(-8 * processors // tiles)))
    return SplitPlan(vec, threads, True, chunks, parts)


@cache
def split_columns(outer: int, length: int, inner: int, vec: int, processors: int) -> SplitPlan:
    """The plan for `outer` times `inner` columns of `length` elements."""
    tiles = -(-inner // (32 * vec))
    chunks = max(1, min(-(-length // 32), -(-8 * processors // (outer * tiles))))
    parts = max(1, min(outer * tiles, -(-8 * processors // -(-length // 32))))
    return SplitPlan(vec, 256, False, chunks, parts)


def _power_above(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()
