"""Liger's cross entropy: one Triton program a row, which reads it twice and writes the gradient over the logits."""

import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.cross_entropy.targets import target_refusal

NOTE = "with a gradient it is given a copy of the logits, which it overwrites; its backward hands that out, once"
WALKS_ONCE = True
"""Backward multiplies what forward wrote in place: over a retained graph the second one multiplies twice."""


def refusal(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> str | None:
    """Why Liger does not take the input, or None."""
    if not target.numel():
        return "takes at least one row"
    return cuda_refusal(input) or dtype_refusal(input) or target_refusal(input, target)


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> torch.Tensor:
    """Loss of `input` (..., C), which Liger gets as a matrix, at the class indices `target` (...)."""
    logits = input.reshape(-1, input.shape[-1])
    if input.requires_grad:
        logits = logits.clone()
    options = (None, ignore_index, z_loss, label_smoothing, reduction, None, False)
    loss = LigerCrossEntropyFunction.apply(logits, target.reshape(-1), *options)[0]
    return loss.view(target.shape) if reduction == "none" else loss
