"""What clocks take: a gradient that shares one row's memory is written out, as a leaf's `.grad` is."""

import pytest
import torch
from made_up import DOUBLE, willing

from kernelyard.core.operator import Implementation
from kernelyard.core.workload import Mode, Workload
from kernelyard.judge.prepare import prepare


class SumOfTwo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        ctx.shape = x.shape
        return 2 * x.sum()

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        return (2 * grad).expand(ctx.shape)


@pytest.mark.parametrize("mode", [Mode.BACKWARD, Mode.FULL])
def test_an_expanded_gradient_is_timed_written_out(mode: Mode) -> None:
    candidate = Implementation("triton", SumOfTwo.apply, willing)
    call = prepare(DOUBLE, candidate, Workload.of(4, 8), mode, torch.device("cpu"))
    (gradient,) = call()
    assert gradient.stride() == (8, 1) and torch.equal(gradient, torch.full((4, 8), 2.0))
