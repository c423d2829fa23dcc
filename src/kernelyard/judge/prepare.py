"""Turn an implementation, a workload and a mode into a call without arguments, which is what clocks take."""

from collections.abc import Callable
from functools import partial

import torch

from kernelyard.core.operator import Implementation, Operator
from kernelyard.core.workload import Mode, Workload


def prepare(
    operator: Operator, candidate: Implementation, workload: Workload, mode: Mode, device: torch.device
) -> Callable[[], object]:
    """Inputs are made here, outside the timed call. BACKWARD keeps one graph and walks it anew at each call."""
    inputs = operator.make_inputs(workload, device)
    if mode is Mode.FORWARD:
        return torch.no_grad()(lambda: candidate.call(*inputs.values()))

    leaves = {
        name: value.detach().requires_grad_() if name in operator.differentiable else value
        for name, value in inputs.items()
    }
    wanted = [leaves[name] for name in operator.differentiable]
    kept = candidate.call(*leaves.values())
    grad = torch.randn_like(kept)
    if mode is Mode.BACKWARD:
        return partial(torch.autograd.grad, kept, wanted, grad, retain_graph=True)
    return lambda: torch.autograd.grad(candidate.call(*leaves.values()), wanted, grad)
