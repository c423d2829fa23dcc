"""RMSNorm as a module."""

import torch

from kernelyard.ops.arguments import sizes
from kernelyard.ops.rms_norm import rms_norm

__all__ = ["RMSNorm"]


class RMSNorm(torch.nn.RMSNorm):
    """`torch.nn.RMSNorm`, computed by `kernelyard.ops.rms_norm`: shape and dtype as there, and its state_dict.

    `offset=1` makes it Gemma's norm (its weight starts at 0), `casting="llama"` Llama's, `casting="t5"` T5's;
    `dim`: where the normalised dims end, 1 for the channels of an image.
    """

    def __init__(
        self,
        normalized_shape: int | list[int] | torch.Size,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        offset: float = 0.0,
        casting: str = "gemma",
        dim: int = -1,
    ) -> None:
        self.offset = offset
        shape = sizes("RMSNorm", "normalized_shape", normalized_shape)
        super().__init__(shape, eps, elementwise_affine, device, dtype)
        self.casting = casting
        self.dim = dim

    def reset_parameters(self) -> None:
        """A weight that multiplies by 1."""
        if self.elementwise_affine:
            torch.nn.init.constant_(self.weight, 1 - self.offset)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return rms_norm(
            input,
            self.normalized_shape,
            self.weight,
            self.eps,
            offset=self.offset,
            casting=self.casting,
            dim=self.dim,
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, offset={self.offset}, casting={self.casting}, dim={self.dim}"
