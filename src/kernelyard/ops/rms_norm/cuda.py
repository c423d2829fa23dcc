"""The CUDA C++ rung: the norms' kernels, without centre or bias."""

from typing import Any

import torch

from kernelyard.kernels.norms.backward import normalise_backward
from kernelyard.kernels.norms.forward import normalise, prepare_result
from kernelyard.kernels.norms.shapes import span
from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.rms_norm import layout, prepared
from kernelyard.ops.rms_norm.derivative import registered


def refusal(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str, count: int, dim: int
) -> str | None:
    """Why this backend does not take the input, or None."""
    return cuda_refusal(x) or dtype_refusal(x, weight)


def _normalise(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, **options: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`normalise`, remembered for the public function, which goes straight to it when the same call comes again."""
    first, end = span(x, options["count"], options["dim"])
    key = layout(x, x.shape[first:end], weight, *(options[name] for name in ("eps", "offset", "casting", "dim")))
    if key not in prepared and (weight is None or weight.is_contiguous()):
        prepared.keep(key, prepare_result(x, weight, bias, **options))
    return normalise(x, weight, bias, **options)


rms_norm = registered("cuda", _normalise, normalise_backward)
