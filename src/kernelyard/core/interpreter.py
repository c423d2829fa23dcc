"""Triton's interpreter, made to round as a GPU does.

Triton 3.6's interpreter turns fp32 into bf16 by cutting the low bits off, where every GPU rounds to nearest even. The
bias adds up: softmax's backward in bf16 came out with 2.5 times eager's error on a CPU, and none of that on a GPU.
"""

import os
from typing import Any

import numpy as np


def interpreting() -> bool:
    """Whether Triton runs kernels through its interpreter in this process."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def choose_for(device_type: str) -> None:
    """Have Triton interpret where there is only a CPU. Triton asks when a kernel is defined, so this comes before."""
    if device_type == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")


def round_to_nearest() -> None:
    """Replace the interpreter's conversion from fp32 to bf16; does nothing where Triton compiles or is not there."""
    if not interpreting():
        return
    try:
        import triton.language as tl
        from triton.runtime import interpreter
    except ImportError:
        return
    convert = interpreter._convert_float
    if getattr(convert, "rounds", False):
        return

    def rounding(value: Any, source: Any, target: Any, mode: Any) -> Any:
        if source == tl.float32 and target == tl.bfloat16:
            return nearest_bfloat16(np.asarray(value, dtype=np.float32))
        return convert(value, source, target, mode)

    rounding.rounds = True  # type: ignore[attr-defined]
    interpreter._convert_float = rounding


def nearest_bfloat16(value: np.ndarray) -> np.ndarray:
    """The bits of the nearest bf16, ties to even, as uint16; NaN stays NaN."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(value), quiet_nan, rounded).astype(np.uint16)
