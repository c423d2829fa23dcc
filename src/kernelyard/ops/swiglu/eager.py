"""The eager rung: torch's own silu and a product. It is the honest baseline and takes every input."""

import torch


def refusal(gate: torch.Tensor, up: torch.Tensor | None) -> str | None:
    """None: there is no input that this backend does not take."""
    return None


def swiglu(gate: torch.Tensor, up: torch.Tensor | None) -> torch.Tensor:
    """silu(gate) * up; without `up`, of the halves of gate's last dim."""
    if up is None:
        gate, up = gate.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up
