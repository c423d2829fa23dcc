"""What can be differentiated, and what cannot says so: over all operators and their kernels."""

from typing import Any

import pytest
import torch
from plain_calls import KERNELS, OPERATORS, batch, cases, inputs, kernel, same, upstream, wanting
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from kernelyard import ops
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Operator
from kernelyard.judge.prepare import as_tuple


def _call(operator: Operator, arguments: list[Any], backend: str | None) -> tuple[torch.Tensor, ...]:
    """The public function on a backend's arguments."""
    positional, named = operator.public_arguments(*arguments)
    return as_tuple(getattr(ops, operator.name)(*positional, **named, backend=backend))


def _of_first(operator: Operator, given: dict[str, Any], backend: str | None) -> Any:
    """The call as a function of its first differentiable argument, and that argument."""
    name = operator.differentiable[0]
    others = {**given}
    return lambda x: _call(operator, list({**others, name: x}.values()), backend), given[name]


def _runs(backend: str, device: torch.device) -> None:
    if backend == "cuda" and device.type == "cpu":
        pytest.skip("needs an NVIDIA GPU")


@pytest.mark.parametrize(("operator", "backend"), cases())
def test_each_gradient_may_be_wanted_alone(operator: Operator, backend: str, device: torch.device) -> None:
    """Frozen weights, or weights alone: what is not wanted changes nothing of what is."""
    given = inputs(operator, 5, device)
    every = batch(operator, 5, device)
    run = kernel(operator, backend, every)
    outputs = as_tuple(run(*every))
    grads = [torch.randn_like(y) for y in outputs]
    expected = torch.autograd.grad(outputs, wanting(every), grads)
    for name, gradient in zip(operator.differentiable, expected, strict=True):
        alone = {**given, name: given[name].detach().requires_grad_()}
        (got,) = torch.autograd.grad(as_tuple(run(*alone.values())), alone[name], grads)
        assert torch.equal(got, gradient), name


@pytest.mark.parametrize(("operator", "backend"), cases())
def test_a_second_derivative_is_refused_and_never_dropped(
    operator: Operator, backend: str, device: torch.device
) -> None:
    """A gradient penalty whose upstream gradients are constants is where torch's once_differentiable is silent."""
    penalties, firsts, wanted = {}, {}, {}
    for name in (backend, "eager"):
        arguments = batch(operator, 5, device)
        wanted[name] = wanting(arguments)
        outputs = as_tuple(kernel(operator, name, arguments)(*arguments))
        total = sum((y * torch.arange(1, y.numel() + 1, device=device).view(y.shape)).sum() for y in outputs)
        firsts[name] = torch.autograd.grad(total, wanted[name], create_graph=True, retain_graph=True)
        penalties[name] = sum(gradient.square().sum() for gradient in firsts[name])
        again = torch.autograd.grad(total, wanted[name], retain_graph=True)
        # torch's own may take another formula where it is to be differentiated twice, as silu's does.
        assert name == "eager" or same(again, tuple(firsts[name]))
    torch.testing.assert_close(firsts[backend], firsts["eager"], rtol=1e-3, atol=1e-3)
    if not penalties["eager"].requires_grad:
        return  # Nothing to drop: the gradient is a constant.
    with pytest.raises(UsageError, match=f"{operator.name}_{backend} has no second derivative: use backend='eager'"):
        torch.autograd.grad(penalties[backend], wanted[backend])


@pytest.mark.parametrize(("operator", "backend"), cases())
def test_a_second_derivative_of_batched_gradients_is_refused_and_never_dropped(
    operator: Operator, backend: str, device: torch.device
) -> None:
    """A vectorized Jacobian that is differentiated again."""
    firsts, wanted = {}, {}
    for name in (backend, "eager"):
        arguments = batch(operator, 5, device)
        wanted[name] = wanting(arguments)
        outputs = as_tuple(kernel(operator, name, arguments)(*arguments))
        grads = [torch.arange(2 * y.numel(), dtype=y.dtype, device=device).view(2, *y.shape) for y in outputs]
        batched = torch.autograd.grad(outputs, wanted[name], grads, is_grads_batched=True, create_graph=True)
        firsts[name] = sum(gradient.square().sum() for gradient in batched)
    if not firsts["eager"].requires_grad:
        return  # Nothing to drop: the gradient is a constant.
    with pytest.raises(UsageError, match=f"{operator.name}_{backend} has no second derivative: use backend='eager'"):
        torch.autograd.grad(firsts[backend], wanted[backend])


@pytest.mark.parametrize(("operator", "backend"), cases())
def test_a_forward_mode_derivative_is_refused_and_never_dropped(
    operator: Operator, backend: str, device: torch.device
) -> None:
    _runs(backend, device)
    call, x = _of_first(operator, inputs(operator, 3, device), backend)
    usual, _ = _of_first(operator, inputs(operator, 3, device), None)
    with pytest.raises(UsageError, match=f"{backend} backend of {operator.name} .*: has no forward-mode derivative"):
        torch.func.jvp(call, (x,), (torch.ones_like(x),))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(UsageError, match="has no forward-mode derivative"):
            call(dual)
        assert forward_ad.unpack_dual(usual(dual)[0]).tangent is not None, "the fallback dropped it"


@pytest.mark.parametrize(("operator", "backend"), cases())
def test_torch_func_is_refused_where_it_differentiates_and_taken_where_it_batches(
    operator: Operator, backend: str, device: torch.device
) -> None:
    _runs(backend, device)
    given = inputs(operator, 3, device)
    call, x = _of_first(operator, given, backend)
    usual, _ = _of_first(operator, given, None)
    with pytest.raises(UsageError, match="is differentiated by backward"):
        torch.func.grad(lambda x: call(x)[0].sum())(x)
    leaf = x.detach().requires_grad_()
    torch.testing.assert_close(
        torch.func.grad(lambda x: usual(x)[0].sum())(x), torch.autograd.grad(usual(leaf)[0].sum(), leaf)[0]
    )
    stacked = torch.stack((x, 2 * x))
    for got, *expected in zip(torch.vmap(call)(stacked), call(x), call(2 * x), strict=True):
        assert torch.equal(got, torch.stack(expected))


@pytest.mark.parametrize(("operator", "backend"), cases())
def test_activations_may_be_computed_again(operator: Operator, backend: str, device: torch.device) -> None:
    """Activation checkpointing, either way."""
    arguments = batch(operator, 5, device)
    run = kernel(operator, backend, arguments)
    outputs = as_tuple(run(*arguments))
    grads = [torch.randn_like(y) for y in outputs]
    expected = torch.autograd.grad(outputs, wanting(arguments), grads)
    again = as_tuple(checkpoint(run, *arguments, use_reentrant=False))
    assert same(torch.autograd.grad(again, wanting(arguments), grads), expected)
    torch.autograd.backward(as_tuple(checkpoint(run, *arguments, use_reentrant=True)), grads)
    assert same(tuple(leaf.grad for leaf in wanting(arguments)), expected)


@pytest.mark.parametrize("backend", [None, "eager", "torchscript"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_autocast_changes_no_public_call(operator: Operator, backend: str | None, device: torch.device) -> None:
    """torch's own operators would come out in another dtype than the kernels: linear in bf16, softmax in fp32."""
    for dtype in ("float32", "float16"):
        arguments = list(inputs(operator, 3, device, dtype).values())
        usual = _call(operator, arguments, backend)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            cast = _call(operator, arguments, backend)
        assert [y.dtype for y in cast] == [y.dtype for y in usual]
        assert same(cast, usual)


@pytest.mark.parametrize("backend", [None, "torchscript", "compile"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_public_call_compiles_without_breaks(operator: Operator, backend: str | None, device: torch.device) -> None:
    """With no backend named: on a CPU what eager is, under autocast too. Of the rungs it is the formula."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *arguments: _call(operator, list(arguments), backend), fullgraph=True, backend="aot_eager"
    )
    arguments = batch(operator, 5, device)
    expected = _call(operator, arguments, None)
    got = compiled(*arguments)
    torch.testing.assert_close(got, expected)
    grads = upstream(got)
    torch.testing.assert_close(
        torch.autograd.grad(got, wanting(arguments), grads), torch.autograd.grad(expected, wanting(arguments), grads)
    )
    with torch.autocast(device.type, dtype=torch.bfloat16):
        torch.testing.assert_close(compiled(*arguments), expected)


def test_kernels_are_tested_at_all() -> None:
    assert cases(KERNELS), "no case above"
