"""What stresses reach where inputs are uniform, as all of KernelBench's are: exp beyond its end, rows below zero."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kernelyard.core.verdict import Status

sys.path.insert(0, str(Path(__file__).parent))
from honest import positive, problem, rows
from test_stress import questions


def layer(x: Tensor) -> Tensor:
    weights = torch.empty(64, 48).uniform_(-1 / 8, 1 / 8, generator=torch.Generator().manual_seed(0))
    return x @ weights.to(x.dtype)


@pytest.mark.parametrize(
    ("call", "lazy", "stress"),
    [
        (lambda x: x.softmax(-1), lambda x: x.exp() / x.exp().sum(-1, True), "scaled_up"),
        (lambda x: x.log_softmax(-1), lambda x: x.softmax(-1).log(), "scaled_up"),
        (lambda x: layer(x).softmax(-1), lambda x: layer(x).exp() / layer(x).exp().sum(-1, True), "scaled_up"),
        (torch.sigmoid, lambda x: x.exp() / (1 + x.exp()), "scaled_up"),
        (F.softplus, lambda x: torch.log(1 + x.exp()), "scaled_up"),
        (F.logsigmoid, lambda x: x.sigmoid().log(), "outliers"),
        (lambda x: x.softmax(-1), lambda x: x.exp() / x.exp().sum(-1, True), "outliers"),
    ],
    ids=["softmax", "log_softmax", "a layer's softmax", "sigmoid", "softplus", "logsigmoid", "by a sample"],
)
def test_inputs_below_one_are_asked_beyond_where_exp_ends(
    call: Callable[..., Tensor], lazy: Callable[..., Tensor], stress: str
) -> None:
    """64 times as large their exp is a number still, and what a layer makes of them is smaller."""
    exam, asked, _ = questions(problem(call, positive(32, 64)))
    question = asked[stress]
    assert exam.mark_values(question, [lazy(*question.arguments)]).status is Status.INCORRECT_VALUE


def test_where_the_largest_scale_is_not_fair_a_smaller_one_is_asked() -> None:
    """The squares of 512 times the inputs are beyond fp16."""
    _, asked, _ = questions(problem(lambda x: x * x, positive(8, 300)), torch.float16)
    assert 16 < asked["scaled_up"].arguments[0].amax() <= 64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("inputs", [positive(8, 300), rows(8, 300)], ids=["uniform", "normal"])
def test_a_maximum_that_begins_at_zero_is_wrong(inputs: Callable[[], list[Tensor]], dtype: torch.dtype) -> None:
    """Of 300 numbers whose signs are drawn, one is above zero."""
    exam, asked, _ = questions(problem(lambda x: x.amax(-1), inputs), dtype)
    (x,) = asked["signs"].arguments
    assert exam.mark_values(asked["signs"], [x.amax(-1).relu()]).status is Status.INCORRECT_VALUE
