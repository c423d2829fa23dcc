"""What the kernel backends take: dtypes and devices. Each function says why not in a few words, or returns None."""

from functools import cache

import torch

from kernelyard.core.interpreter import interpreting
from kernelyard.core.workload import dtype_name

TYPES = {torch.float32: "float", torch.bfloat16: "Bfloat", torch.float16: "Half"}
"""The dtypes that kernels take, with their names in the CUDA headers."""


_FLOATING = (*TYPES, torch.float64)
"""The dtypes that torch's own operators compute in: float8 is one to store and to multiply matrices of."""


def dtype_refusal(*tensors: torch.Tensor | None) -> str | None:
    """Why a kernel does not take one of the tensors' dtypes, or None."""
    for tensor in tensors:
        if tensor is not None and tensor.dtype not in TYPES:
            return f"takes float32, bfloat16 and float16, not {dtype_name(tensor.dtype)}"
    return None


def floating_refusal(*tensors: torch.Tensor | None) -> str | None:
    """Why torch's own operators do not take one of the tensors, or None."""
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.dtype not in _FLOATING:
            return f"takes floating dtypes of 16 bits or more, not {dtype_name(tensor.dtype)}"
        if tensor.layout is not torch.strided:
            return f"takes strided tensors, not {str(tensor.layout).removeprefix('torch.')}"
    return None


_OLDEST = (7, 5)
"""The capability from which on NVRTC of CUDA 13 compiles: a V100 has 7.0, a P100 6.0."""


def cuda_refusal(x: torch.Tensor) -> str | None:
    """Why CUDA C++ does not run where `x` is, or None."""
    if not x.is_cuda or torch.version.hip is not None:
        return "needs an NVIDIA GPU"
    return _age_refusal(x.get_device())


def _age_refusal(index: int) -> str | None:
    capability = _capability(index)
    if capability >= _OLDEST:
        return None
    needed, found = (".".join(map(str, each)) for each in (_OLDEST, capability))
    return f"needs a GPU of compute capability {needed} or later, this one has {found}"


# As in `ops.dispatch`: Dynamo asks while it traces a call, and does not trace into it.
_age_refusal._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _capability(index: int) -> tuple[int, int]:
    """Asked once, for torch takes microseconds; where tensors are fake there may be no GPU to ask."""
    return torch.cuda.get_device_capability(index) if torch.cuda.is_available() else _OLDEST


def triton_refusal(x: torch.Tensor) -> str | None:
    """Why Triton does not run where `x` is, or None."""
    if x.device.type == "cpu" and not interpreting():
        return "needs a GPU, or TRITON_INTERPRET=1 for Triton's interpreter"
    if x.is_meta:
        return "needs data, which a meta tensor does not have"
    return None
