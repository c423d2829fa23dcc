"""The TorchScript rung of an operator: a formula in plain torch, scripted. Deprecated in torch; kept as a rung."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from kernelyard.kernels.calls import batching_refusal, call_key

_PROFILED_RUNS = 2


def script_refusal() -> str | None:
    """Why TorchScript does not run a call made here, or None; within torch.compile the formula itself is traced."""
    if torch.compiler.is_compiling():
        return None
    if not torch.jit._state._enabled:
        return "needs TorchScript, which PYTORCH_JIT=0 switches off"
    return batching_refusal()


def scripted(formula: Callable[..., Any]) -> Callable[..., Any]:
    """`formula` through torch.jit.script, run until it has settled on its kernels for the arguments at hand.

    Within torch.compile it is the formula itself: Dynamo cannot trace what tells settled calls apart.
    """
    with warnings.catch_warnings():
        for deprecated in (DeprecationWarning, FutureWarning):  # the latter since torch 2.15
            warnings.simplefilter("ignore", deprecated)
        script = torch.jit.script(formula)
    settled: set[tuple[Any, ...]] = set()

    @wraps(formula)
    def call(*arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            return formula(*arguments)
        key = call_key(arguments)
        if key not in settled:
            _settle(script, arguments)
            settled.add(key)
        return script(*arguments)

    return call


def _settle(script: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Run what TorchScript only profiles: fused kernels come with the second call, with other last bits on a GPU.

    On leaves that share the arguments' memory and past hooks on saved tensors, for the caller's hooks are there for
    the caller's own passes: checkpointing counts what a forward saves, and two passes more would be 9 tensors for 3.
    """
    twins = [item.detach().requires_grad_() if _wants_gradient(item) else item for item in arguments]
    leaves = [item for item in twins if _wants_gradient(item)]
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
        for _ in range(_PROFILED_RUNS):
            results = script(*twins)
            outputs = [y for y in (results if isinstance(results, tuple) else (results,)) if y.requires_grad]
            if outputs and torch.is_grad_enabled():
                zeros = [torch.zeros_like(y) for y in outputs]
                torch.autograd.grad(outputs, leaves, zeros, allow_unused=True)


def _wants_gradient(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.requires_grad
