"""Whose kernels convolve in float64: cuDNN's, or torch's own where the answer takes less time by those.

cuDNN's transposed convolutions are slow in float64: KernelBench's 2/78 takes 0.8 s an answer on an H100, of which a
verdict asks for some forty, and 28 of its 42 s were spent so. torch's own unfold the input into columns and leave the
product to cuBLAS.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

SLOW_SECONDS = 0.25
"""A first question that is quicker is asked of nobody else: to compare costs two more answers."""


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
