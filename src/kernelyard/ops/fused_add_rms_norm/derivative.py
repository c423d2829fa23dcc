"""What the kernel backends share: how a raw forward and backward become the torch operator fused_add_rms_norm."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernelyard.kernels.norms.shapes import lines, result_dtype
from kernelyard.kernels.registration import register


def registered(
    backend: str, add_normalise: Callable[..., Any], normalise_backward: Callable[..., Any]
) -> Callable[..., Any]:
    """The norms' shared kernels as the torch operators `kernelyard::fused_add_rms_norm_<backend>`[_backward].

    The total and the weight are kept, and the reciprocal root mean square of every row in float32. x and the residual
    have one gradient between them, the norm's plus the total's own.
    """

    def forward(
        x: Tensor, residual: Tensor, weight: Tensor | None, eps: float, offset: float, casting: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        return add_normalise(x, residual, weight, eps=eps, offset=offset, casting=casting)

    def backward(
        dy: Tensor | None,
        dtotal: Tensor | None,
        total: Tensor,
        weight: Tensor | None,
        rstd: Tensor,
        offset: float,
        casting: str,
    ) -> tuple[Tensor, Tensor]:
        options = {"dtotal": dtotal, "offset": offset, "casting": casting, "centred": False, "bias": False}
        dx, dweight, _ = normalise_backward(dy, total, weight, rstd.new_empty(0), rstd, count=1, dim=-1, **options)
        return dx, dweight

    def fake_forward(
        x: Tensor, residual: Tensor, weight: Tensor | None, eps: float, offset: float, casting: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        y = x.new_empty(x.shape, dtype=result_dtype(x, weight, casting))
        return y, x.new_empty(x.shape), x.new_empty(lines(x, 1, -1), dtype=torch.float32)

    def fake_backward(
        dy: Any, dtotal: Any, total: Tensor, weight: Tensor | None, rstd: Tensor, offset: float, casting: str
    ) -> tuple[Tensor, Tensor]:
        return total.new_empty(total.shape), total.new_empty(0) if weight is None else weight.new_empty(weight.shape)

    return register(
        f"fused_add_rms_norm_{backend}",
        forward,
        backward,
        fake_forward=fake_forward,
        fake_backward=fake_backward,
        save=lambda inputs, outputs: ((outputs[1], inputs[2], outputs[2]), inputs[4:]),
        gradients=((0, 1), 2),
        results=2,
    )
