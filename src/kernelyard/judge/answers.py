"""What an answer is, apart from being right: room for it, what stands there before, and how far it is usually off."""

from typing import Any

import torch
from torch import Tensor

from kernelyard.core.problem import each_tensor, place
from kernelyard.judge.compare import CHUNK
from kernelyard.sandbox.wire import POISON


def unwritten(answer: Tensor) -> Tensor:
    """What stands where an answer of this kind is to be written."""
    if not answer.numel():
        return answer
    raw = torch.full((answer.numel() * answer.element_size(),), POISON, dtype=torch.uint8, device=answer.device)
    return raw.view(answer.dtype).view(answer.shape)


def noise_of(answer: Tensor) -> float:
    """Half an ulp of one, or of the largest element where that is smaller; 0 of integers."""
    if not answer.is_floating_point() or not answer.numel():
        return 0.0
    return torch.finfo(answer.dtype).eps / 2 * min(1.0, max(map(_largest_number, answer.reshape(-1).split(CHUNK))))


def usual_error(honest: Tensor, reference: Tensor) -> float:
    """The largest error over the largest element."""
    if not honest.numel():
        return 0.0
    error = scale = 0.0
    for own, exact in zip(honest.reshape(-1).split(CHUNK), reference.reshape(-1).split(CHUNK), strict=True):
        error = max(error, _largest_number(own.to(exact.device).double() - exact))
        scale = max(scale, _largest_number(exact))
    return error / scale if scale else 0.0


def deviation(one: Tensor, other: Tensor) -> float:
    """Root mean square of the difference."""
    squares = 0.0
    for left, right in zip(one.reshape(-1).split(CHUNK), other.reshape(-1).split(CHUNK), strict=True):
        squares += torch.linalg.vector_norm(left.to(right.device).double() - right.double()).item() ** 2
    return float((squares / max(one.numel(), 1)) ** 0.5)


def _largest_number(tensor: Tensor) -> float:
    """The largest magnitude among those that are finite."""
    return tensor.abs().nan_to_num_(nan=0.0, posinf=0.0).max().item()


def room_for(room: Tensor, answer: Tensor) -> Tensor:
    """Where sizes hang on values, twice the largest so far: an answer without room is fetched once the clock stands."""
    if answer.numel() == room.numel() or 2 * answer.numel() <= room.numel():
        return room
    return answer.new_empty(2 * answer.numel(), device="meta")


def as_far_as_it_goes(reference: Tensor, dtype: torch.dtype) -> Tensor:
    """What float64 holds and `dtype` does not is an infinity in `dtype`."""
    if not dtype.is_floating_point:
        return reference
    rounded = reference.to(dtype)  # 65510 is 65504 in fp16, whose largest number that is
    return torch.where(rounded.isinf(), rounded.double(), reference)


def copied_to(value: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """The reference gets copies: one that works in place must not touch what the candidate will see."""

    def copied(x: Tensor) -> Tensor:
        placed: Tensor = place(x, dtype, device)
        return placed.clone() if placed is x else placed

    return each_tensor(value, copied)
