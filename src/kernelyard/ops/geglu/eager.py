"""The eager rung: torch's own gelu and a product. It is the honest baseline."""

import torch

from kernelyard.kernels.support import floating_refusal


def refusal(gate: torch.Tensor, up: torch.Tensor | None, approximate: str) -> str | None:
    """Why this backend does not take the input, or None."""
    return floating_refusal(gate, up)


def geglu(gate: torch.Tensor, up: torch.Tensor | None, approximate: str) -> torch.Tensor:
    """gelu(gate) * up; without `up`, of the halves of gate's last dim."""
    if up is None:
        gate, up = gate.chunk(2, -1)
    return (torch.nn.functional.gelu(gate, approximate=approximate) * up).contiguous()
