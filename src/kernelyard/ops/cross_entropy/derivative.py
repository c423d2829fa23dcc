"""What the kernel backends share: how raw kernels become the torch operator cross_entropy.

Where autograd runs eagerly, the forward pass of a reduced loss also writes the gradient for an upstream gradient of 1,
which is what `loss.backward()` brings: the logits are read once for both. The backward pass has a kernel look at the
upstream gradient, on the device, and compute anew, from the logits, only where it is not 1. Computing anew moves as
many bytes as scaling would, and rounds once: an fp16 gradient that was written for 1 has lost what a scaled loss needs.

With `reduction="none"` the upstream gradients are hardly ever all 1, and under torch.compile an operator must return a
fresh tensor: there the forward pass reads and the backward pass reads and writes.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch

from kernelyard.kernels.registration import differentiable_once, needs_operator, observed, register
from kernelyard.ops.cross_entropy.rows import gradient_strides

# Whether the backward pass that runs keeps its graph, so that another one may follow. Private to torch, there in
# 2.9 to 2.13; without it every pass is taken to be one of several.
_keeps_graph: Callable[[], bool] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


class Forward(Protocol):
    """Loss; with `keep` also what the backward pass needs, and with `gradient` the gradient for an upstream of 1.

    What is kept: fp32, each row's maximum and sum of exp(logit - maximum), and behind them the factor that a mean (or
    sum: 1) puts on every row.
    """

    def __call__(
        self,
        input: torch.Tensor,
        target: torch.Tensor,
        ignore_index: int,
        reduction: str,
        label_smoothing: float,
        z_loss: float,
        *,
        keep: bool,
        gradient: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]: ...


class Backward(Protocol):
    """The gradient for an upstream `grad`: fresh, or written over `made`, which is right already where `grad` is 1."""

    def __call__(
        self,
        grad: torch.Tensor,
        input: torch.Tensor,
        target: torch.Tensor,
        kept: torch.Tensor,
        ignore_index: int,
        reduction: str,
        label_smoothing: float,
        z_loss: float,
        made: torch.Tensor | None = None,
    ) -> torch.Tensor: ...


def fresh_gradient(input: torch.Tensor) -> torch.Tensor:
    """What a gradient of these logits is written to."""
    return input.new_empty_strided(input.shape, gradient_strides(input.shape, input.stride()))


def registered(backend: str, forward: Forward, backward: Backward) -> Callable[..., torch.Tensor]:
    """The two as the torch operators `kernelyard::cross_entropy_<backend>`[_backward]; returns what users call."""
    operator = _operator(backend, forward, backward)
    one_pass = _one_pass(backend, forward, backward)

    def cross_entropy(
        input: torch.Tensor,
        target: torch.Tensor,
        ignore_index: int,
        reduction: str,
        label_smoothing: float,
        z_loss: float,
    ) -> torch.Tensor:
        arguments = (input, target, ignore_index, reduction, label_smoothing, z_loss)
        if torch.compiler.is_compiling() or observed(input, target):
            return operator(*arguments)
        if input.requires_grad and torch.is_grad_enabled():
            return operator(*arguments) if reduction == "none" else one_pass(*arguments)
        return forward(*arguments, keep=False, gradient=False)[0]

    return cross_entropy


def _operator(backend: str, forward: Forward, backward: Backward) -> Callable[..., torch.Tensor]:
    def raw_forward(
        input: torch.Tensor,
        target: torch.Tensor,
        ignore_index: int,
        reduction: str,
        label_smoothing: float,
        z_loss: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        loss, kept, _ = forward(
            input, target, ignore_index, reduction, label_smoothing, z_loss, keep=True, gradient=False
        )
        assert kept is not None
        return loss, kept

    def raw_backward(
        grad: torch.Tensor,
        input: torch.Tensor,
        target: torch.Tensor,
        kept: torch.Tensor,
        ignore_index: int,
        reduction: str,
        label_smoothing: float,
        z_loss: float,
    ) -> torch.Tensor:
        return backward(grad, input, target, kept, ignore_index, reduction, label_smoothing, z_loss)

    def fake_forward(input: torch.Tensor, target: torch.Tensor, _: int, reduction: str, *__: float) -> Any:
        loss = input.new_empty(target.shape if reduction == "none" else ())
        return loss, input.new_empty(2 * target.numel() + int(reduction != "none"), dtype=torch.float32)

    return register(
        f"cross_entropy_{backend}",
        raw_forward,
        raw_backward,
        fake_forward=fake_forward,
        fake_backward=lambda grad, input, *_: fresh_gradient(input),
        save=lambda inputs, outputs: ((*inputs[:2], outputs[1]), inputs[2:]),
        gradients=(0,),
    )


def _one_pass(backend: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    class OnePass(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: torch.Tensor, target: torch.Tensor, *options: Any) -> torch.Tensor:
            loss, kept, made = forward(input, target, *options, keep=True, gradient=True)
            # Saved like the rest: a checkpoint, or whoever moves saved tensors, would else leave it where it is.
            ctx.save_for_backward(input, target, kept, made)
            ctx.options = options
            return loss

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
            *saved, made = ctx.saved_tensors
            if needs_operator(grad):
                return (run_operator(grad, *saved, *ctx.options), None, None, None, None, None)
            # What is handed out is the caller's to change, so only the last pass hands out what the forward made.
            # So does whoever moves saved tensors and lays them otherwise: it is written over where it lies.
            logits = saved[0]
            if _keeps_graph() or made.stride() != gradient_strides(logits.shape, logits.stride()):
                made = None
            return (run_backward(grad, *saved, *ctx.options, made), None, None, None, None, None)

    run_backward = differentiable_once(f"cross_entropy_{backend}", backward)
    run_operator = getattr(torch.ops.kernelyard, f"cross_entropy_{backend}_backward")
    OnePass.__name__ = OnePass.__qualname__ = f"cross_entropy_{backend}"
    return OnePass.apply
