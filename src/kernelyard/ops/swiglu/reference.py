"""The definition of SwiGLU in plain torch; the ground truth when called in float64."""

import torch


def swiglu(gate: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
    """gate * sigmoid(gate) * up; without `up`, of the halves of gate's last dim."""
    if up is None:
        gate, up = gate.chunk(2, -1)
    return gate * torch.sigmoid(gate) * up
