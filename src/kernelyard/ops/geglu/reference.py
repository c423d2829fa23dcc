"""The definition of GEGLU in plain torch; the ground truth when called in float64."""

import math

import torch


def geglu(gate: torch.Tensor, up: torch.Tensor | None = None, approximate: str = "none") -> torch.Tensor:
    """gate * Phi(gate) * up, Phi by erfc or by tanh; without `up`, of the halves of gate's last dim."""
    if up is None:
        gate, up = gate.chunk(2, -1)
    if approximate == "tanh":
        # (1 + tanh(u)) / 2, without its cancellation.
        phi = torch.sigmoid(2 * math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))
    else:
        phi = torch.erfc(-gate / math.sqrt(2)) / 2
    return gate * phi * up
