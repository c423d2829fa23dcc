"""Whose kernels convolve in float64: cuDNN's, or torch's own where the answer takes less time by those.

torch's own unfold the input into columns and leave the product to cuBLAS. Of 32 problems of KernelBench's that convolve
the answer takes less so in 29 on an H100: 2803 ms by cuDNN and 250 by torch in 1/68, 184 and 11 in 1/58, 459 and 64 in
2/77, but 4 and 17 in 2/79. A verdict asks for some forty: of 42 s for one on 2/78, 28 were float64 by cuDNN.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from kernelyard.judge.parts import close, largest

SLOW_SECONDS = 0.1
"""A first question that takes less is asked of nobody else: to compare costs two more answers."""


@contextmanager
def convolving(*, by_cudnn: bool) -> Iterator[None]:
    """By cuDNN inside, or by torch's own kernels."""
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = before and by_cudnn
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


def torchs_own_serve(answer: Callable[[], list[Tensor]], device: torch.device) -> bool:
    """Whether torch's own kernels give the same `answer` as cuDNN, and in less time than where it was asked before.

    Not where it fails by either: columns are as many times the input as a kernel has elements, and what only cuDNN has
    nobody else computes.
    """
    try:
        usual, by_cudnn = _timed(answer, device)
        with convolving(by_cudnn=False):
            own, by_torch = _timed(answer, device)
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
