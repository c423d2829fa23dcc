"""Values on torch's meta device, which has none: of what was made from constants alone, as a mask of ones, they are
known, and of inputs that somebody gives."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

# A mask of 2047 by 2047 tokens, as a model of language makes one for itself; beyond that a copy costs seconds.
MOST_ELEMENTS = 1 << 23


class Known(TorchFunctionMode):
    """Follows operators on the meta device with copies on the host of what was made from what is known.

    As a mode it follows `x[:, [0, -1]]`, whose list reaches operators as a tensor on the meta device.

    Whether a mask holds a zero, and how far positions go, is what models of language ask before they compute.
    """

    def __init__(self) -> None:
        super().__init__()
        self._copies: Any = WeakTensorKeyDictionary()
        """By the tensor on the meta device."""

    def give(self, tensor: Tensor, copy: Tensor) -> None:
        """`tensor`, on the meta device, has the values of `copy`."""
        self._copies[tensor] = copy

    def value(self, tensor: Tensor) -> bool | int | float | None:
        """What `tensor.item()` is; None where that is not known."""
        copy = self._copies.get(tensor)
        return None if copy is None else copy.item()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        answer = func(*args, **(kwargs or {}))
        copy = self._copies.get(args[0]) if func is Tensor.__getitem__ else None
        if copy is not None and not any(isinstance(leaf, Tensor) for leaf in tree_leaves(args[1])):
            self.give(answer, copy[args[1]])
        return answer

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], answer: Any) -> None:
        """Computes the copy of `answer`, which `func` made of `args`, where all of them are known."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if any(tensor.is_meta and tensor not in self._copies for tensor in tensors) or not _is_constant(func, answer):
            if func._schema.is_mutable:  # what it writes to is no longer what it was
                for tensor in tensors:
                    self._copies.pop(tensor, None)
            return
        copied = self._copied(args), self._copied(dict(kwargs))
        if "device" in copied[1]:
            copied[1]["device"] = "cpu"
        made = func(*copied[0], **copied[1])
        for tensor, copy in zip(tree_leaves(answer), tree_leaves(made), strict=True):
            if isinstance(tensor, Tensor):
                self._copies[tensor] = copy

    def _copied(self, value: Any) -> Any:
        return tree_map_only(Tensor, lambda tensor: self._copies.get(tensor, tensor), value)


def _is_constant(func: Callable[..., Any], answer: Any) -> bool:
    """Whether equal arguments give equal answers, small enough to be made."""
    made = [leaf for leaf in tree_leaves(answer) if isinstance(leaf, Tensor)]
    if torch.Tag.nondeterministic_seeded in func.tags or "empty" in func.__name__:  # type: ignore[attr-defined]
        return False
    return all(tensor.is_meta and tensor.numel() <= MOST_ELEMENTS for tensor in made)
