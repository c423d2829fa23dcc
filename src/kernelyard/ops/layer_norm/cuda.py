"""The CUDA C++ rung: the norms' kernels, centred and with a bias."""

from typing import Any

import torch

from kernelyard.kernels.norms.backward import normalise_backward
from kernelyard.kernels.norms.forward import normalise, prepare_result
from kernelyard.kernels.norms.shapes import parameters_refusal, span
from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.layer_norm import layout, prepared
from kernelyard.ops.layer_norm.derivative import registered


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return cuda_refusal(x) or dtype_refusal(x, weight, bias) or parameters_refusal(weight, bias)


def _normalise(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, **options: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`normalise`, remembered for the public function, which goes straight to it when the same call comes again."""
    first, end = span(x, options["count"], options["dim"])
    key = layout(x, x.shape[first:end], weight, bias, options["eps"], options["dim"])
    if key not in prepared and all(p is None or p.is_contiguous() for p in (weight, bias)):
        prepared.keep(key, prepare_result(x, weight, bias, **options))
    return normalise(x, weight, bias, **options)


layer_norm = registered("cuda", _normalise, normalise_backward)
