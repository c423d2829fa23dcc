"""QuACK's cross entropy: a CuTe kernel that reads the logits for the loss, and one that reads them for the gradient."""

import torch
from quack.cross_entropy import cross_entropy as quack_cross_entropy

from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.cross_entropy.targets import target_refusal

VECTOR = 16
"""Bytes that a row has to be a multiple of, for the gradient."""

NOTE = "its loss is float32; here it is cast to the logits' dtype"


def refusal(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> str | None:
    """Why QuACK does not take the input, or None."""
    if label_smoothing or z_loss:
        return "has neither label smoothing nor z-loss"
    if not target.numel() or input.shape[-1] * input.element_size() % VECTOR:
        return f"takes at least one row, of a multiple of {VECTOR} bytes"
    return cuda_refusal(input) or dtype_refusal(input) or target_refusal(input, target)


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> torch.Tensor:
    """Loss of `input` (..., C), which QuACK gets as a matrix, at the class indices `target` (...)."""
    logits = input.reshape(-1, input.shape[-1])
    loss = quack_cross_entropy(logits, target.reshape(-1), ignore_index=ignore_index, reduction=reduction)
    return (loss.view(target.shape) if reduction == "none" else loss).to(input.dtype)
