"""What the kernel backends share: how a raw forward and backward become the torch operator fused_linear_rowsum."""

from collections.abc import Callable
from typing import Any

import torch

from kernelyard.kernels.registration import register


def registered(backend: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """The raw pair as the torch operators `kernelyard::fused_linear_rowsum_<backend>[_backward]`.

    `forward(x, weight, bias)` returns y and the float32 column sums of the weight. `backward(dy, x, sums, out_features,
    weight_dtype, bias_dtype)` returns (dx, dweight, dbias); x is None where the weight wants no gradient, sums where x
    wants none, bias_dtype where the bias wants none, and the gradient is an empty tensor then.
    """
    return register(
        f"fused_linear_rowsum_{backend}",
        forward,
        backward,
        fake_forward=lambda x, weight, bias: (
            x.new_empty(x.shape[:-1]),
            weight.new_empty(weight.shape[1], dtype=torch.float32),
        ),
        fake_backward=empty_gradients,
        save=_save,
        gradients=(0, 1, 2),
    )


def _save(inputs: tuple[Any, ...], outputs: tuple[torch.Tensor, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    x, weight, bias = inputs
    kept = (x if weight.requires_grad else None, outputs[1] if x.requires_grad else None)
    wanted = bias is not None and bias.requires_grad
    return kept, (weight.shape[0], weight.dtype, bias.dtype if wanted else None)


def empty_gradients(
    dy: torch.Tensor,
    x: torch.Tensor | None,
    sums: torch.Tensor | None,
    out_features: int,
    weight_dtype: torch.dtype,
    bias_dtype: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dx, dweight, dbias) with nothing written; of no elements where a gradient is not wanted."""
    return (
        dy.new_empty(0 if sums is None else (*dy.shape, sums.shape[0])),
        dy.new_empty(0 if x is None else (out_features, x.shape[-1]), dtype=weight_dtype),
        dy.new_empty(0 if bias_dtype is None else out_features, dtype=bias_dtype or dy.dtype),
    )
