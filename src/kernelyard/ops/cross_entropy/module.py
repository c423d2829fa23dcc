"""Cross entropy as a module."""

import torch

from kernelyard.core.errors import UsageError
from kernelyard.ops.cross_entropy import cross_entropy

__all__ = ["CrossEntropyLoss"]


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss` with a z-loss, computed by `kernelyard.ops.cross_entropy`; shapes as there,
    the loss in the logits' dtype under autocast too.

    Raises UsageError for class weights, which no kernel here takes.
    """

    def __init__(
        self,
        weight: torch.Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> None:
        if weight is not None:
            raise UsageError("CrossEntropyLoss takes no class weights")
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.z_loss = z_loss

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return cross_entropy(
            input,
            target,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
        )
