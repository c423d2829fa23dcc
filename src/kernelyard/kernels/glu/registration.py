"""What the kernel backends share: how a raw forward and backward become a torch operator."""

from collections.abc import Callable
from typing import Any

import torch

from kernelyard.kernels.registration import register


def register_glu(name: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """`forward(gate, up, *options)` and `backward(dy, gate, up, *options)` as `kernelyard::<name>`[_backward].

    What is kept for the backward is gate and up themselves: the activation is computed again there.
    """
    return register(
        name,
        forward,
        backward,
        fake_forward=_fake_forward,
        fake_backward=_fake_backward,
        save=lambda inputs, y: (inputs[:2], inputs[2:]),
        gradients=(0, 1),
    )


def _fake_forward(gate: torch.Tensor, up: torch.Tensor | None, *options: Any) -> torch.Tensor:
    return gate.new_empty(gate.shape if up is not None else (*gate.shape[:-1], gate.shape[-1] // 2))


def _fake_backward(dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor | None, *options: Any) -> Any:
    return gate.new_empty(gate.shape), gate.new_empty(0 if up is None else up.shape)
