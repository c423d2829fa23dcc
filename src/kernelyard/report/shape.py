"""Shapes as people type them."""

import math

from kernelyard.core.errors import UsageError


def parse_shape(text: str) -> tuple[int, ...]:
    """(8, 1000) from `8x1000`; raises UsageError for anything that is no list of extents."""
    try:
        shape = tuple(int(extent) for extent in text.lower().split("x"))
    except ValueError:
        raise UsageError(f"shape {text!r}: expected extents joined by x, such as 8x1000") from None
    if any(extent < 0 for extent in shape):
        raise UsageError(f"shape {text!r}: expected extents of 0 or more")
    if math.prod(shape) >= 1 << 48:
        raise UsageError(f"shape {text!r}: expected less than 2**48 elements")
    return shape
