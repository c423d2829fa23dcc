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

    Two things go through float32 in float16, where torch (2.11, 2.13) rounds to the logits' dtype what is beyond its
    65504. With label smoothing a row's log-probabilities are added up, then the rows: of one row of 9000 classes, or 20
    of 1000, the loss of 10 is infinite. Of a mean over more rows than that their number is, and the gradient zero.
    An ignored row of minus infinity has torch's gradient without a z-loss: NaN.
    """
    logits, classes = input.reshape(-1, input.shape[-1]), target.reshape(-1).long()
    many = reduction == "mean" and len(classes) > torch.finfo(torch.float16).max
    # The square of a half type's logarithm is infinite from 256 on.
    wide = z_loss != 0 or (input.dtype is torch.float16 and (label_smoothing != 0 or many))
    if wide and input.dtype is not torch.float64:
        logits = logits.float()
    if z_loss:
        counts = classes != ignore_index
        logits = torch.where(counts.unsqueeze(1), logits, 0.0)
    loss = F.cross_entropy(
        logits, classes, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    if z_loss:
        squares = z_loss * torch.where(counts, logits.logsumexp(1).square(), 0.0)
        if reduction != "none":
            squares = squares.sum() / (counts.sum() if reduction == "mean" else 1)
        loss = loss + squares
    if wide:
        loss = loss.to(input.dtype)
    return loss.reshape(target.shape) if reduction == "none" else loss
