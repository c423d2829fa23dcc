"""A raw forward and backward made into torch operators, with a short path around them for eager calls.

`torch.compile`, `torch.export` and fake tensors need a registered operator; its dispatch costs more host time
than a small kernel runs. So `register` registers the pair once and returns a callable that takes the operator
only where something looks at operators, and otherwise goes straight to the launch.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from kernelyard.core.errors import UsageError
from kernelyard.kernels.prepared import observed

Outputs = torch.Tensor | tuple[torch.Tensor, ...]

_is_batched = torch._C._functorch.is_legacy_batchedtensor


def needs_operator(*grads: torch.Tensor | None) -> bool:
    """Whether a backward with these gradients takes the registered operator: traced, observed, or batched.

    `is_grads_batched` is torch's older vmap, which shows in the gradients alone. 0.5 us of a backward.
    """
    if torch.compiler.is_compiling() or observed(*grads):
        return True
    for grad in grads:  # noqa: SIM110 - a generator's frame costs a microsecond
        if grad is not None and _is_batched(grad):
            return True
    return False


def differentiable_once(name: str, backward: Callable[..., Any]) -> Callable[..., Any]:
    """A raw backward whose gradients, where autograd keeps a graph of them too, refuse to be differentiated.

    torch's `once_differentiable` refuses only where an upstream gradient wants a gradient: a gradient penalty on
    `y.sum()`, whose upstream gradients are ones, would train on without its second derivative.
    """

    class Gradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            return backward(*arguments)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            _refuse(name)

    def run(*arguments: Any) -> Any:
        return Gradient.apply(*arguments) if torch.is_grad_enabled() else backward(*arguments)

    return run


def _refuse(name: str) -> NoReturn:
    raise UsageError(f"{name} has no second derivative: use backend='eager', which has one")


def register(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *,
    fake_forward: Callable[..., Any],
    fake_backward: Callable[..., Any],
    save: Callable[[tuple[Any, ...], Any], tuple[tuple[torch.Tensor, ...], tuple[Any, ...]]],
    gradients: tuple[int | tuple[int, ...], ...],
    results: int = 1,
) -> Callable[..., Any]:
    """Register `kernelyard::<name>` and `kernelyard::<name>_backward`; return the callable users get.

    `forward(*inputs)` returns fresh tensors only: the result, or a tuple of the `results` results and then what
    the backward needs. `save(inputs, outputs)` picks what is kept: tensors (or None) and constants.
    `backward(*grads, *tensors, *constants)` takes one gradient for each result, None for a result that nothing
    used where there are several, and returns the gradients of the inputs at the positions in `gradients`: fresh
    tensors, of any shape for an input that is None or wants no gradient. An entry of `gradients` that is a tuple
    names several inputs with one gradient between them. Both are annotated: torch reads their schema from it.
    The fakes take the same arguments and return empty tensors of the right shape.

    The callable returns the result, or a tuple of the results where there are several.
    """
    forward_op = torch.library.custom_op(f"kernelyard::{name}", forward, mutates_args=())
    backward_op = torch.library.custom_op(f"kernelyard::{name}_backward", backward, mutates_args=())
    forward_op.register_fake(fake_forward)
    backward_op.register_fake(fake_backward)

    positions = [entry if isinstance(entry, tuple) else (entry,) for entry in gradients]
    flat = [position for places in positions for position in places]
    schema = getattr(torch.ops.kernelyard, name).default._schema
    operands = [position for position, given in enumerate(schema.arguments) if "Tensor" in str(given.type)]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors, ctx.constants = save(inputs, output)
        ctx.save_for_backward(*tensors)
        ctx.count = len(inputs)
        ctx.set_materialize_grads(False)

    def differentiate(run: Callable[..., Any], ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        spread: list[torch.Tensor | None] = [None] * ctx.count
        grads = grads[:results]
        if all(grad is None for grad in grads):
            return tuple(spread)
        found = run(*grads, *ctx.saved_tensors, *ctx.constants)
        for places, value in zip(positions, found if isinstance(found, tuple) else (found,), strict=True):
            for position in places:
                if ctx.needs_input_grad[position]:
                    spread[position] = value
        return tuple(spread)

    forward_op.register_autograd(
        lambda ctx, *grads: differentiate(backward_op, ctx, grads), setup_context=setup_context
    )
    backward_op.register_autograd(lambda ctx, *grads: _refuse(name))

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            outputs = forward(*inputs)
            setup_context(ctx, inputs, outputs)
            if not isinstance(outputs, tuple):
                return outputs
            ctx.mark_non_differentiable(*outputs[results:])
            return outputs

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            return differentiate(backward_op if needs_operator(*grads) else run_backward, ctx, grads)

    run_backward = differentiable_once(name, backward)
    Direct.__name__ = Direct.__qualname__ = name

    def call(*inputs: Any) -> Any:
        if torch.compiler.is_compiling() or observed(*[inputs[position] for position in operands]):
            outputs = forward_op(*inputs)
        elif torch.is_grad_enabled() and wants_gradient(inputs):
            outputs = Direct.apply(*inputs)
        else:
            outputs = forward(*inputs)
        if not isinstance(outputs, tuple):
            return outputs
        return outputs[0] if results == 1 else outputs[:results]

    def wants_gradient(inputs: tuple[Any, ...]) -> bool:
        # A loop, since a generator's frame costs a microsecond.
        for position in flat:  # noqa: SIM110
            if inputs[position] is not None and inputs[position].requires_grad:
                return True
        return False

    return call
