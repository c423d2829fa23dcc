"""The definition of cross entropy in plain torch; the ground truth when called in float64."""

import torch


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> torch.Tensor:
    """Loss of `input` (..., C) at the class indices `target` (...)."""
    logits, classes = input.reshape(-1, input.shape[-1]), target.reshape(-1).long()
    counts = classes != ignore_index
    known = (classes >= 0) & (classes < logits.shape[1])
    logits = torch.where(counts.unsqueeze(1), logits, 0.0)
    lse = logits.logsumexp(1)
    losses = lse - logits.gather(1, torch.where(known, classes, 0)[:, None])[:, 0]
    if label_smoothing:
        losses = (1 - label_smoothing) * losses + label_smoothing * (lse - logits.mean(1))
    if z_loss:
        losses = losses + z_loss * lse.square()
    losses = torch.where(counts, losses * torch.where(known | ~counts, 1.0, float("nan")), 0)
    if reduction == "none":
        return losses.reshape(target.shape)
    return losses.sum() / counts.sum() if reduction == "mean" else losses.sum()
