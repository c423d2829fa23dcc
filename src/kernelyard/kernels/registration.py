"""A raw forward and backward made into torch operators, with a short path around them for eager calls.

`torch.compile`, `torch.export` and fake tensors need a registered operator; its dispatch costs more host time
than a small kernel runs. So `register` registers the pair once and returns a callable that takes the operator
only where something looks at operators, and otherwise goes straight to the launch.
"""

from collections.abc import Callable
from typing import Any

import torch

Outputs = torch.Tensor | tuple[torch.Tensor, ...]


def register(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *,
    fake_forward: Callable[..., Any],
    fake_backward: Callable[..., Any],
    save: Callable[[tuple[Any, ...], Any], tuple[tuple[torch.Tensor, ...], tuple[Any, ...]]],
    gradients: tuple[int, ...],
) -> Callable[..., torch.Tensor]:
    """Register `kernelyard::<name>` and `kernelyard::<name>_backward`; return the callable users get.

    `forward(*inputs)` returns fresh tensors only: the result, or a tuple of the result and what the backward
    needs. `save(inputs, outputs)` picks what is kept: tensors and constants. `backward(grad, *tensors,
    *constants)` returns the gradients of the inputs at the positions in `gradients`. Both are annotated:
    torch reads their schema from it. The fakes take the same arguments and return empty tensors of the right
    shape.
    """
    forward_op = torch.library.custom_op(f"kernelyard::{name}", forward, mutates_args=())
    backward_op = torch.library.custom_op(f"kernelyard::{name}_backward", backward, mutates_args=())
    forward_op.register_fake(fake_forward)
    backward_op.register_fake(fake_backward)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors, ctx.constants = save(inputs, output)
        ctx.save_for_backward(*tensors)
        ctx.count = len(inputs)

    def differentiate(run: Callable[..., Any], ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        found = run(grad, *ctx.saved_tensors, *ctx.constants)
        spread: list[torch.Tensor | None] = [None] * ctx.count
        for position, value in zip(gradients, found if isinstance(found, tuple) else (found,), strict=True):
            spread[position] = value
        return tuple(spread)

    forward_op.register_autograd(
        lambda ctx, grad, *_: differentiate(backward_op, ctx, grad), setup_context=setup_context
    )

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            outputs = forward(*inputs)
            setup_context(ctx, inputs, outputs)
            if not isinstance(outputs, tuple):
                return outputs
            ctx.mark_non_differentiable(*outputs[1:])
            return outputs

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[Any, ...]:
            return differentiate(backward, ctx, grad)

    Direct.__name__ = Direct.__qualname__ = name

    def call(*inputs: Any) -> torch.Tensor:
        if torch.compiler.is_compiling() or _observed(inputs[0]):
            outputs = forward_op(*inputs)
        elif torch.is_grad_enabled() and any(inputs[position].requires_grad for position in gradients):
            outputs = Direct.apply(*inputs)
        else:
            outputs = forward(*inputs)
        return outputs[0] if isinstance(outputs, tuple) else outputs

    return call


def _observed(leading: torch.Tensor) -> bool:
    """Whether a tensor subclass, a functorch transform or a dispatch mode looks at operators."""
    return (
        type(leading) not in (torch.Tensor, torch.nn.Parameter)
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )
