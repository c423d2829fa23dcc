"""LayerNorm as a module."""

import torch

from kernelyard.ops.arguments import sizes
from kernelyard.ops.layer_norm import layer_norm

__all__ = ["LayerNorm"]


class LayerNorm(torch.nn.LayerNorm):
    """`torch.nn.LayerNorm`, computed by `kernelyard.ops.layer_norm`: shape and dtype as there, and its state_dict.

    `dim`: where the normalised dims end; 1 for the channels of an image.
    """

    def __init__(
        self,
        normalized_shape: int | list[int] | torch.Size,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        dim: int = -1,
    ) -> None:
        shape = sizes("LayerNorm", "normalized_shape", normalized_shape)
        super().__init__(shape, eps, elementwise_affine, bias, device, dtype)
        self.dim = dim

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps, dim=self.dim)

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.dim == -1 else f", dim={self.dim}")
