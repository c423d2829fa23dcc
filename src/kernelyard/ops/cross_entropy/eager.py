"""The eager rung: torch's own cross entropy, and the z-loss as one would write it."""

import torch
import torch.nn.functional as F

from kernelyard.kernels.support import floating_refusal


def refusal(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> str | None:
    """Why this backend does not take the input, or None."""
    return floating_refusal(input)


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> torch.Tensor:
    """Loss of `input` (..., C) at the class indices `target` (...), in input's dtype; any floating dtype and device.

    An ignored row of minus infinity has torch's gradient without a z-loss: NaN.
    """
    logits, classes = input.reshape(-1, input.shape[-1]), target.reshape(-1).long()
    if z_loss:
        # The square of a half type's logarithm is infinite from 256 on.
        counts = classes != ignore_index
        wide = logits if logits.dtype is torch.float64 else logits.float()
        logits = torch.where(counts.unsqueeze(1), wide, 0.0)
    loss = F.cross_entropy(
        logits, classes, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    if z_loss:
        squares = z_loss * torch.where(counts, logits.logsumexp(1).square(), 0.0)
        if reduction != "none":
            squares = squares.sum() / (counts.sum() if reduction == "mean" else 1)
        loss = (loss + squares).to(input.dtype)
    return loss.reshape(target.shape) if reduction == "none" else loss
