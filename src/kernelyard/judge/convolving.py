"""Whose kernels convolve in float64: cuDNN's, or torch's own where the answer takes less time by those.

torch's own unfold the input into columns and leave the product to cuBLAS. Of 32 problems of KernelBench's that convolve
the answer takes less so in 29 on an H100: 2803 ms by cuDNN and 250 by torch in 1/68, 184 and 11 in 1/58, 459 and 64 in
2/77, 17 and 7 in 2/74, but 4 and 22 in 2/79, 39 and 201 in 2/27. A verdict asks for some forty: of 42 s for one on
2/78, 28 were float64 by cuDNN. So both are asked for some rows where rows can be asked for alone.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from kernelyard.core.errors import FAULTS
from kernelyard.judge.parts import close, largest, part, rows_of

SLOW_SECONDS = 0.015
"""A first question that takes less is asked of nobody else: of those in 3 to 6 ms by cuDNN four of five take six times
as long by torch, and to compare costs as much as is gained."""
SHARE = 8
"""By one row in so many it is told who is quicker."""


@contextmanager
def convolving(*, by_cudnn: bool) -> Iterator[None]:
    """By cuDNN inside, or by torch's own kernels."""
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = before and by_cudnn
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


def some_rows(arguments: list[Any], answers: Sequence[Tensor], asked: Callable[[list[Any]], object]) -> list[Any]:
    """Some rows of what is `asked` about, or all where they cannot be asked for alone: a model may know how many."""
    rows = rows_of(arguments, answers)
    if rows is None:
        return arguments
    few: list[Any] = part(arguments, rows, 0, max(1, rows // SHARE))
    try:
        asked(few)
    except FAULTS:
        return arguments
    return few


def torchs_own_serve(answer: Callable[[], list[Tensor]], device: torch.device) -> bool:
    """Whether torch's own kernels give the same `answer` as cuDNN, and in less time than where it was asked before.

    Not where it fails by either: columns are as many times the input as a kernel has elements, and what only cuDNN has
    nobody else computes.
    """
    try:
        usual, by_cudnn = _timed(answer, device)
        with convolving(by_cudnn=False):
            first, by_torch = _timed(answer, device)
            # The first of a process loads kernels for as long as some answers take.
            own = min(first, _timed(answer, device)[0])
        return own < usual and all(close(a, b, largest(b)) for a, b in zip(by_torch, by_cudnn, strict=True))
    except RuntimeError:
        return False


def _timed(answer: Callable[[], list[Tensor]], device: torch.device) -> tuple[float, list[Tensor]]:
    """Its seconds, and itself."""
    torch.cuda.synchronize(device)
    begin = time.monotonic()
    made = answer()
    torch.cuda.synchronize(device)
    return time.monotonic() - begin, made
