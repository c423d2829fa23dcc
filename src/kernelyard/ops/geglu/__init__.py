"""GEGLU, in every backend of the ladder."""

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.kernels.glu.layout import layout, prepared, shape_error
from kernelyard.kernels.prepared import inference
from kernelyard.ops.arguments import check_string, check_tensors
from kernelyard.ops.dispatch import implementation


def geglu(
    gate: torch.Tensor,
    up: torch.Tensor | None = None,
    approximate: str = "none",
    *,
    backend: Backend | str | None = None,
) -> torch.Tensor:
    """gelu(gate) * up, by the fastest backend that takes the input.

    gate, up: one shape and dtype, any layout; float32, bfloat16 or float16 for the kernels. Without `up`, the last
    dim of `gate` holds gate and up, one after the other: [gate | up]. Rows that lie apart, as those of
    `gate_up.chunk(2, -1)` do, are read where they are; but the gradients of such views are put together by a copy,
    which a packed `gate` saves. `approximate`, as torch has it: "none" is x Phi(x) with the normal distribution's
    Phi, "tanh" the approximation that GPT-2 and Gemma were trained with. Returns a contiguous tensor of up's shape
    and dtype, computed in float32, rounded once, differentiable with respect to gate and up. torch's own operators
    also take gate and up of two dtypes; the result has the one that these promote to, in the layout that they choose.

    Without `backend`: CUDA C++ on an NVIDIA GPU, else Triton on a GPU. Where neither takes the input (a CPU
    tensor, float64) it is torch's own two operators, which a log line says once. A named backend is used or
    refused, never replaced.

    Raises TypeError for an argument of another kind, ValueError for shapes that differ or a packed gate with an odd
    last dim, UsageError for any other `approximate`, tensors on two devices, an unknown backend or one that does not
    take the input.
    """
    if approximate not in ("none", "tanh"):
        check_string("geglu", "approximate", approximate)
        raise UsageError(f"geglu: approximate is 'none' or 'tanh', not {approximate!r}")
    if backend is None and prepared and inference(gate, up):
        run = prepared.get(layout(approximate, gate, up))
        if run is not None:
            return run(gate, up)
    check_tensors("geglu", {"gate": gate}, {"up": up})
    if (wrong := shape_error(gate, up)) is not None:
        raise ValueError(f"geglu: {wrong}")
    return implementation("geglu", backend, gate, up, approximate)(gate, up, approximate)
