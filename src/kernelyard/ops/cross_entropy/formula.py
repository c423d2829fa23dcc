"""Cross entropy written out, for the rungs that turn a formula into kernels: TorchScript and torch.compile."""

import torch


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> torch.Tensor:
    """Loss of `input` (..., C) at the class indices `target` (...), computed in float32, in input's dtype."""
    logits, classes = input.reshape(-1, input.shape[-1]), target.reshape(-1).long()
    counts = classes != ignore_index
    known = (classes >= 0) & (classes < logits.shape[1])
    # An ignored row counts for nothing, whatever it holds: of minus infinity alone its gradient would be NaN.
    below = torch.where(counts.unsqueeze(1), logits.float(), 0.0)
    peak = torch.amax(below.detach(), [1], keepdim=True)
    peak = torch.where(torch.isinf(peak) & (peak < 0), torch.zeros_like(peak), peak)
    below = below - peak
    log_sum = torch.log(torch.exp(below).sum(1))
    aimed = torch.gather(below, 1, torch.where(known, classes, torch.zeros_like(classes)).unsqueeze(1)).squeeze(1)
    losses = log_sum - aimed
    if label_smoothing != 0.0:
        losses = (1.0 - label_smoothing) * losses + label_smoothing * (log_sum - below.mean(1))
    if z_loss != 0.0:
        losses = losses + z_loss * (peak.squeeze(1) + log_sum).square()
    # A factor rather than a choice, so that the gradient of a row whose target is no class is NaN too.
    losses = losses * torch.where(known | ~counts, torch.ones_like(losses), torch.full_like(losses, float("nan")))
    losses = torch.where(counts, losses, torch.zeros_like(losses))
    if reduction == "none":
        return losses.reshape(target.shape).to(input.dtype)
    total = losses.sum()
    if reduction == "mean":
        total = total / counts.sum()
    return total.to(input.dtype)
