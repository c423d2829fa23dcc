"""Turn an implementation, a workload and a mode into a call without arguments, which is what clocks take."""

from collections.abc import Callable
from typing import Any

import torch

from kernelyard.core.operator import Implementation, Operator
from kernelyard.core.workload import Mode, Workload


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    """What a call returned, as a tuple of its outputs."""
    # Not `tuple | list`: where a call is traced, Dynamo of torch 2.9 does not know a union.
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def leaves(operator: Operator, inputs: dict[str, Any]) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """The arguments of one differentiable call on `inputs`, and by name those among them that get gradients."""
    arguments = {
        name: value.detach().requires_grad_() if name in operator.differentiable and value is not None else value
        for name, value in inputs.items()
    }
    wanted = {name: arguments[name] for name in operator.differentiable if arguments[name] is not None}
    return list(arguments.values()), wanted


def copies(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same arguments, laid out alike, in memory of their own."""
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}


def prepare(
    operator: Operator,
    candidate: Implementation,
    workload: Workload,
    mode: Mode,
    device: torch.device,
    inputs: dict[str, Any] | None = None,
) -> Callable[[], object]:
    """Inputs are made here, outside the timed call, or shared by all contenders. BACKWARD keeps one graph and walks it
    anew at each call.

    A scalar output is a loss: its gradient is 1, as `loss.backward()` has it. Any other output's is random.
    """
    inputs = operator.make_inputs(workload, device) if inputs is None else inputs
    inputs = copies(inputs) if candidate.overwrites else inputs
    if mode is Mode.FORWARD:
        return torch.no_grad()(lambda: candidate.call(*inputs.values()))

    arguments, named = leaves(operator, inputs)
    wanted = list(named.values())
    kept = as_tuple(candidate.call(*arguments))
    grads = [torch.randn_like(output) if output.dim() else torch.ones_like(output) for output in kept]

    def walk() -> tuple[torch.Tensor, ...]:
        if mode is Mode.BACKWARD:
            return torch.autograd.grad(kept, wanted, grads, retain_graph=True)
        return torch.autograd.grad(as_tuple(candidate.call(*arguments)), wanted, grads)

    return (lambda: [_written(gradient) for gradient in walk()]) if any(map(_expanded, walk())) else walk


def _expanded(gradient: torch.Tensor) -> bool:
    """Whether elements share memory, as those of one row that stands for all do."""
    return any(stride == 0 and size > 1 for size, stride in zip(gradient.shape, gradient.stride(), strict=True))


def _written(gradient: torch.Tensor) -> torch.Tensor:
    """Every element in memory of its own, as a leaf's `.grad` has it: autograd makes that copy, so it is timed."""
    return gradient.contiguous() if _expanded(gradient) else gradient
