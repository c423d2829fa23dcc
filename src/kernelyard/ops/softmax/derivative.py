"""What the kernel backends share: how a raw forward and backward become the torch operator softmax."""

from collections.abc import Callable
from typing import Any

import torch

from kernelyard.core.workload import dtype_name
from kernelyard.kernels.registration import register

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def dtype_refusal(x: torch.Tensor) -> str | None:
    """Why a kernel of this operator does not take x's dtype, or None."""
    if x.dtype in DTYPES:
        return None
    return f"takes float32, bfloat16 and float16, not {dtype_name(x.dtype)}"


def registered(backend: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """`forward(x, dim)` and `backward(dy, y, dim)` as the torch operators `kernelyard::softmax_<backend>`[_backward].

    The backward needs the result alone, so x is not kept.
    """
    return register(
        f"softmax_{backend}",
        forward,
        backward,
        fake_forward=lambda x, dim: x.new_empty(x.shape),
        fake_backward=lambda dy, y, dim: y.new_empty(y.shape),
        save=lambda inputs, y: ((y,), (inputs[1],)),
        gradients=(0,),
    )
