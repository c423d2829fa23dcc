"""What a call takes beyond what was held before it."""

from functools import partial

import pytest
import torch

from kernelyard.judge.timing import peak_memory


@pytest.mark.gpu
def test_a_backward_that_repeats_takes_as_much_each_time(device: torch.device) -> None:
    """Autograd's thread may hold the gradients of the call before for a moment: they are not there beforehand."""
    x = torch.randn(1 << 22, device=device, requires_grad=True)
    y = x.exp()
    call = partial(torch.autograd.grad, y, x, torch.ones_like(y), retain_graph=True)
    assert {peak_memory(call, device) for _ in range(300)} == {x.nbytes}
