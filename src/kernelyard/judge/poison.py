"""Fill what `torch.empty` returns with NaN, so that a read of memory nobody wrote shows in the result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._C._dynamo import guards
from torch.utils._device import _device_constructors


@contextmanager
def poisoned_empty() -> Iterator[None]:
    """Inside, torch.empty, empty_like, empty_strided and Tensor.new_empty return NaN (or the largest integer).

    So does what Inductor's code allocates with. Outside, what was bound inside allocates as ever: code that is compiled
    or prepared during a proof keeps the function it found, and would be timed with a pass of NaN for each result.
    """
    inside = True
    # A device as a context, `with torch.device("meta")`, knows by a cached set what allocates. Filled inside, it would
    # hold our functions for good and torch's own would pass it by.
    _device_constructors()

    def poisoned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def make_poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
            made = make(*args, **kwargs)
            if made.is_meta or torch.compiler.is_compiling() or not inside:
                return made
            if made.is_floating_point() or made.is_complex():
                return made.fill_(float("nan"))
            return made.fill_(True if made.dtype is torch.bool else torch.iinfo(made.dtype).max)

        return make_poisoned

    with (
        patch.object(torch, "empty", poisoned(torch.empty)),
        patch.object(torch, "empty_like", poisoned(torch.empty_like)),
        patch.object(torch, "empty_strided", poisoned(torch.empty_strided)),
        patch.object(torch.Tensor, "new_empty", poisoned(torch.Tensor.new_empty)),
        patch.object(guards, "_empty_strided_cuda", poisoned(guards._empty_strided_cuda)),  # type: ignore[attr-defined]
    ):
        try:
            yield
        finally:
            inside = False
