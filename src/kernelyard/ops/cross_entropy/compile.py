"""The torch.compile rung: the written-out formula, fused by Inductor for the exact shape called with."""

import torch

from kernelyard.kernels.compiled import compiled, compiler_refusal
from kernelyard.kernels.support import dtype_refusal
from kernelyard.ops.cross_entropy import formula
from kernelyard.ops.cross_entropy.targets import target_refusal

cross_entropy = compiled(formula.cross_entropy)


def refusal(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> str | None:
    """Why this backend does not take the input, or None."""
    return dtype_refusal(input) or target_refusal(input, target) or compiler_refusal()
