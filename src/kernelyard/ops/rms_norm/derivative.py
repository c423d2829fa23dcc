"""What the kernel backends share: how a raw forward and backward become the torch operator rms_norm."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernelyard.kernels.norms.shapes import lines, result_dtype
from kernelyard.kernels.registration import register


def registered(
    backend: str, normalise: Callable[..., Any], normalise_backward: Callable[..., Any]
) -> Callable[..., Any]:
    """The norms' shared forward and backward as the torch operators `kernelyard::rms_norm_<backend>`[_backward].

    x and weight are kept, and the reciprocal root mean square of every row in float32.
    """

    def forward(
        x: Tensor, weight: Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
    ) -> tuple[Tensor, Tensor]:
        y, _, rstd = normalise(
            x, weight, None, eps=eps, offset=offset, casting=casting, centred=False, count=count, dim=dim
        )
        return y, rstd

    def backward(
        dy: Tensor, x: Tensor, weight: Tensor | None, rstd: Tensor, offset: float, casting: str, count: int, dim: int
    ) -> tuple[Tensor, Tensor]:
        options = {"offset": offset, "casting": casting, "count": count, "dim": dim}
        dx, dweight, _ = normalise_backward(
            dy, x, weight, rstd.new_empty(0), rstd, centred=False, bias=False, **options
        )
        return dx, dweight

    def fake_forward(
        x: Tensor, weight: Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
    ) -> tuple[Tensor, Tensor]:
        y = x.new_empty(x.shape, dtype=result_dtype(x, weight, casting))
        return y, x.new_empty(lines(x, count, dim), dtype=torch.float32)

    def fake_backward(
        dy: Tensor, x: Tensor, weight: Tensor | None, rstd: Tensor, offset: float, casting: str, count: int, dim: int
    ) -> tuple[Tensor, Tensor]:
        return x.new_empty(x.shape), x.new_empty(0) if weight is None else weight.new_empty(weight.shape)

    return register(
        f"rms_norm_{backend}",
        forward,
        backward,
        fake_forward=fake_forward,
        fake_backward=fake_backward,
        save=lambda inputs, outputs: ((inputs[0], inputs[1], outputs[1]), inputs[3:]),
        gradients=(0, 1),
    )
