"""How the operators' inputs are made: from a workload's seed, in every layout that a kernel has to take."""

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.workload import Workload

LAYOUTS = ("contiguous", "transposed", "sliced", "expanded", "misaligned")


def generator_of(workload: Workload, device: torch.device) -> torch.Generator:
    """Fresh, from the workload's seed: the tensors of one call are drawn from it one after another."""
    # The meta device, on which problems are counted, has no generator of its own.
    return torch.Generator("cpu" if device.type == "meta" else device).manual_seed(workload.seed)


def laid_out(x: torch.Tensor, layout: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The values of `x` as a view of the wanted layout.

    `transposed`: the last two dims; `sliced`: rows within longer ones, off by five elements; `expanded`: x has size
    1 where `shape` has more; `misaligned`: one element off any alignment. Raises UsageError for any other.
    """
    if layout == "contiguous":
        return x
    if layout == "expanded":
        return x.expand(shape)
    if layout == "transposed":
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "sliced":
        return torch.nn.functional.pad(x, (5, 8))[..., 5 : 5 + shape[-1]]
    if layout == "misaligned":
        return x.new_zeros(x.numel() + 1)[1:].copy_(x.flatten()).view(shape)
    raise UsageError(f"unknown layout {layout!r}, expected one of {', '.join(LAYOUTS)}")
