"""Tensors whose sign torch keeps as a bit beside memory (`z.conj().imag`): no kernel may read the memory alone."""

import pytest
import torch
from plain_calls import OPERATORS, batch, cases, inputs, kernel, same, wanting

from kernelyard import ops
from kernelyard.core.operator import Operator
from kernelyard.judge.prepare import as_tuple
from kernelyard.kernels import prepared


def _with_bit(x: torch.Tensor) -> torch.Tensor:
    """`x`, of which memory holds -x."""
    return torch._neg_view(-x.detach()).requires_grad_(x.requires_grad)


@pytest.mark.parametrize(("operator", "backend"), cases())
def test_each_tensor_may_have_its_sign_as_a_bit(operator: Operator, backend: str, device: torch.device) -> None:
    plain = batch(operator, 5, device)
    run = kernel(operator, backend, plain)
    outputs = as_tuple(run(*plain))
    grads = [torch.randn_like(y) for y in outputs]
    gradients = torch.autograd.grad(outputs, wanting(plain), grads, retain_graph=True)
    assert same(torch.autograd.grad(outputs, wanting(plain), [_with_bit(grad) for grad in grads]), gradients), (
        "upstream"
    )
    for place, x in enumerate(plain):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            continue
        given = [*plain[:place], _with_bit(x), *plain[place + 1 :]]
        with torch.no_grad():
            assert same(as_tuple(run(*given)), outputs), f"argument {place}"
        bit = as_tuple(run(*given))
        assert same(bit, outputs), f"argument {place}"
        # Not bit for bit: cross_entropy in CUDA computes loss and gradient at once where nothing looks at operators.
        torch.testing.assert_close(torch.autograd.grad(bit, wanting(given), grads), gradients)


@pytest.mark.gpu
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_call_that_repeats_sees_the_bit(operator: Operator, device: torch.device) -> None:
    arguments = inputs(operator, 5, device)
    positional, named = operator.public_arguments(*arguments.values())
    call = getattr(ops, operator.name)
    expected = [as_tuple(call(*positional, **named)) for _ in range(3)][-1]
    bits = [_with_bit(x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in positional]
    torch.testing.assert_close(as_tuple(call(*bits, **named)), expected)


def test_what_has_the_bit_takes_the_long_way() -> None:
    x = torch.zeros(2)
    bit = _with_bit(x)
    assert not prepared.inference(bit) and not prepared.inference(x, None, bit)
    assert prepared.observed(bit) and prepared.observed(x, None, bit) and not prepared.observed(x, None, x)
