"""What outputs are returned in, and in whose memory they lie."""

from typing import Any, NamedTuple

import pytest
import torch

from kernelyard.sandbox.form import ALONE, Form, forms_of
from kernelyard.sandbox.wire import MOST_OUTPUTS


class Pair(NamedTuple):
    first: Any
    second: Any


X, Y = torch.randn(4, 6), torch.randn(4, 6)


@pytest.mark.parametrize(
    ("returned", "containers"),
    [
        (Y, [()]),
        ((Y,), [(("tuple", 1),)]),
        ((Y, []), [(("tuple", 2),)]),
        ([Y, (1, None)], [(("list", 2),), (("list", 2), ("tuple", 2)), (("list", 2), ("tuple", 2))]),
        (Pair(Y, 2), [(("tuple", 2),), (("tuple", 2),)]),
        ({"b": [Y], "a": 1}, [(("dict", 2),), (("dict", 2), ("list", 1))]),
    ],
)
def test_what_outputs_are_returned_in(returned: Any, containers: list[tuple[tuple[str, int], ...]]) -> None:
    assert [form.containers for form in forms_of(returned, [X])] == containers


@pytest.mark.parametrize(
    ("returned", "owners"),
    [
        ((Y, Y.clone()), [(), ()]),
        ((Y, Y), [(), ("output[0]",)]),
        ((Y, Y[1:3]), [(), ("output[0]",)]),
        ((Y[:2], Y[2:]), [(), ()]),
        ((Y[:2], Y[2:], Y), [(), (), ("output[0]", "output[1]")]),
        ((X, Y), [("input[0]",), ()]),
        ((X, X), [("input[0]",), ("input[0]", "output[0]")]),
        (X.view(-1)[5:], [("input[0]",)]),
        (torch.nn.Parameter(X), [("input[0]",)]),
        ((X[:0], 3, X.to_sparse()), [(), (), ()]),
    ],
)
def test_in_whose_memory_they_lie(returned: Any, owners: list[tuple[str, ...]]) -> None:
    assert [form.memory_of for form in forms_of(returned, [X])] == owners


def test_inputs_are_found_wherever_they_stand() -> None:
    assert forms_of(X, [1, {"mask": None, "pair": (Y, X)}]) == [Form((), ("input[1][pair][1]",))]


def test_of_more_outputs_than_a_reply_holds_nobody_hears() -> None:
    assert forms_of([X] * (MOST_OUTPUTS + 1), [X]) == [ALONE] * (MOST_OUTPUTS + 1)
