"""What the kernel backends share: how a raw forward and backward become the torch operator layer_norm."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernelyard.kernels.norms.shapes import lines
from kernelyard.kernels.registration import register


def registered(
    backend: str, normalise: Callable[..., Any], normalise_backward: Callable[..., Any]
) -> Callable[..., Any]:
    """The norms' shared forward and backward as the torch operators `kernelyard::layer_norm_<backend>`[_backward].

    x and weight are kept, and the mean and reciprocal standard deviation of every row in float32.
    """

    def forward(
        x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, count: int, dim: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        return normalise(x, weight, bias, eps=eps, offset=0.0, casting="gemma", centred=True, count=count, dim=dim)

    def backward(
        dy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, bias: bool, count: int, dim: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        return normalise_backward(
            dy, x, weight, mean, rstd, offset=0.0, casting="gemma", centred=True, bias=bias, count=count, dim=dim
        )

    def fake_forward(x: Tensor, weight: Any, bias: Any, eps: float, count: int, dim: int) -> tuple[Tensor, ...]:
        number = lines(x, count, dim)
        return (x.new_empty(x.shape), *(x.new_empty(number, dtype=torch.float32) for _ in range(2)))

    def fake_backward(
        dy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, bias: bool, count: int, dim: int
    ) -> tuple[Tensor, ...]:
        like = x.new_empty(0) if weight is None else weight
        return x.new_empty(x.shape), like.new_empty(like.shape), like.new_empty(like.shape if bias else 0)

    return register(
        f"layer_norm_{backend}",
        forward,
        backward,
        fake_forward=fake_forward,
        fake_backward=fake_backward,
        save=lambda inputs, outputs: (
            (inputs[0], inputs[1], outputs[1], outputs[2]),
            (inputs[2] is not None, inputs[4], inputs[5]),
        ),
        gradients=(0, 1, 2),
    )
