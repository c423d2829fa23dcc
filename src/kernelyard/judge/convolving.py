"""Whose kernels convolve in float64: cuDNN's, or torch's own where the answer takes less time by those.

torch's own unfold the input into columns and leave the product to cuBLAS. Of 32 problems of KernelBench's that convolve
the answer takes less so in 29 on an H100: 2803 ms by cuDNN and 250 by torch in 1/68, 184 and 11 in 1/58, 459 and 64 in
2/77, but 4 and 17 in 2/79. A verdict asks for some forty: of 42 s for one on 2/78, 28 were float64 by cuDNN.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

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


def cudnn_is_quicker(answer: Callable[[], object], device: torch.device) -> bool:
    """Whether `answer`, asked for once before, takes as little time as it stands as it does without cuDNN."""
    usual = _seconds(answer, device)
    try:
        with convolving(by_cudnn=False):
            return usual <= _seconds(answer, device)
    except torch.OutOfMemoryError:  # columns are as many times the input as a kernel has elements
        return True


def _seconds(answer: Callable[[], object], device: torch.device) -> float:
    torch.cuda.synchronize(device)
    begin = time.monotonic()
    answer()
    torch.cuda.synchronize(device)
    return time.monotonic() - begin
