"""FusedAddRMSNorm as a module."""

import torch

from kernelyard.core.errors import UsageError
from kernelyard.ops.arguments import sizes
from kernelyard.ops.fused_add_rms_norm import fused_add_rms_norm

__all__ = ["FusedAddRMSNorm"]


class FusedAddRMSNorm(torch.nn.RMSNorm):
    """`torch.nn.RMSNorm` over the last dim of input + residual, by `kernelyard.ops.fused_add_rms_norm`.

    Called with (input, residual), it returns (normalised, total); its state_dict is nn.RMSNorm's. `offset=1` makes it
    Gemma's (its weight starts at 0), `casting="llama"` Llama's, `casting="t5"` T5's. Raises UsageError for a
    `normalized_shape` of several sizes.
    """

    def __init__(
        self,
        normalized_shape: int | list[int] | torch.Size,
        eps: float | None = 1e-6,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        offset: float = 0.0,
        casting: str = "gemma",
    ) -> None:
        self.offset = offset
        shape = sizes("FusedAddRMSNorm", "normalized_shape", normalized_shape)
        super().__init__(shape, eps, elementwise_affine, device, dtype)
        if len(self.normalized_shape) != 1:
            raise UsageError(f"FusedAddRMSNorm works over the last dim, expected one size, not {normalized_shape}")
        self.casting = casting

    def reset_parameters(self) -> None:
        """A weight that multiplies by 1."""
        if self.elementwise_affine:
            torch.nn.init.constant_(self.weight, 1 - self.offset)

    def forward(  # type: ignore[override]
        self, input: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return fused_add_rms_norm(input, residual, self.weight, self.eps, offset=self.offset, casting=self.casting)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, offset={self.offset}, casting={self.casting}"
