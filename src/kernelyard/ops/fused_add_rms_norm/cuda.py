"""The CUDA C++ rung: the norms' kernels, adding on the way in and on the way back."""

from typing import Any

import torch

from kernelyard.kernels.norms.backward import normalise_backward
from kernelyard.kernels.norms.forward import add_normalise
from kernelyard.kernels.norms.shapes import residual_refusal
from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.fused_add_rms_norm import layout, prepared
from kernelyard.ops.fused_add_rms_norm.derivative import registered


def refusal(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float, casting: str
) -> str | None:
    """Why this backend does not take the input, or None."""
    return cuda_refusal(x) or dtype_refusal(x, weight) or residual_refusal(x, residual)


def _add_normalise(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, **options: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`add_normalise`, remembered for the public function, which goes straight to it when the same call comes again."""
    key = layout(x, residual, weight, *(options[name] for name in ("eps", "offset", "casting")))
    if key not in prepared:
        prepared.keep(key, lambda x, residual, weight: add_normalise(x, residual, weight, **options)[:2])
    return add_normalise(x, residual, weight, **options)


fused_add_rms_norm = registered("cuda", _add_normalise, normalise_backward)
