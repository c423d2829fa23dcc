"""Rotary position embedding as a module."""

import torch

from kernelyard.ops.arguments import check_tensors
from kernelyard.ops.rope import rope

__all__ = ["RotaryEmbedding"]


class RotaryEmbedding(torch.nn.Module):
    """transformers' LlamaRotaryEmbedding and apply_rotary_pos_emb in one; nothing of it is in a `state_dict`, as there.

    Of each head the first `dim` elements are rotated, pair i at position p by the angle p * base ** (-2 i / dim)
    (Su et al., RoFormer, 2021, eq. 15). Angles are float32 whatever the module is cast to: in bfloat16 position 257
    is position 256.
    """

    def __init__(self, dim: int, base: float = 10000.0, *, interleaved: bool = False) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ValueError(f"RotaryEmbedding: dim is {dim}, expected an even number of elements")
        self.dim, self.base, self.interleaved = dim, base, interleaved

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, position_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """q (B, Hq, T, D) and k (B, Hk, T, D), rotated; errors as `kernelyard.ops.rope` has them.

        `position_ids` (T,) or (B, T), integers; without them 0 to T - 1.
        """
        check_tensors("RotaryEmbedding", {"q": q, "k": k}, {"position_ids": position_ids})
        if position_ids is None:
            # Without tokens where q has no such dim, which rope names.
            position_ids = torch.arange(q.shape[-2] if q.dim() > 1 else 0, device=q.device)
        exponents = torch.arange(0, self.dim, 2, device=q.device, dtype=torch.float32) / self.dim
        angles = position_ids[..., None].float() * self.base**-exponents
        angles = angles.repeat_interleave(2, -1) if self.interleaved else torch.cat((angles, angles), -1)
        return rope(q, k, angles.cos(), angles.sin(), interleaved=self.interleaved)

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base:g}, interleaved={self.interleaved}"
