"""What the kernel backends share: how a raw forward and backward become the torch operator diagonal_matmul."""

from collections.abc import Callable
from typing import Any

import torch

from kernelyard.kernels.registration import register


def registered(backend: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """`forward(a, B)` and `backward(dy, a, B, matrix)` as `kernelyard::diagonal_matmul_<backend>[_backward]`.

    The backward returns (da, dB): an empty tensor for da where B is None, and for dB where `matrix` is false. B is
    kept only where a wants its gradient.
    """
    return register(
        f"diagonal_matmul_{backend}",
        forward,
        backward,
        fake_forward=lambda a, B: B.new_empty(B.shape),
        fake_backward=_fake_backward,
        save=_save,
        gradients=(0, 1),
    )


def _save(inputs: tuple[Any, ...], y: torch.Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    a, matrix = inputs
    return (a, matrix if a.requires_grad else None), (matrix.requires_grad,)


def _fake_backward(
    dy: torch.Tensor,
    a: torch.Tensor,
    B: torch.Tensor | None,
    matrix: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    return a.new_empty(a.shape if B is not None else 0), dy.new_empty(dy.shape if matrix else 0)
