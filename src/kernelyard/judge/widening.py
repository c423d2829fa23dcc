"""A forward pass in float64, also where the reference asks for float32 by name.

`x.float()`, `x.to(torch.float32)` and `torch.zeros(n, dtype=torch.float32)` are how careful references are written. In
float64 they would take the answer back to fp32: held against its own rounding the honest answer is without error, and
whoever adds up in another order is refused; or two dtypes meet that torch does not mix.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@contextmanager
def in_float64(*, by_name: bool) -> Iterator[None]:
    """What is made inside is of the default dtype, float64: the zeros that an LSTM starts from.

    `by_name`: what is asked for as float32 is, too.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widened(on=by_name):
            yield
    finally:
        torch.set_default_dtype(before)


class _Widened(TorchFunctionMode):
    def __init__(self, *, on: bool) -> None:
        super().__init__()
        self._on = on

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # A view in another dtype converts nothing.
        if self._on and func is not Tensor.view:
            func = Tensor.double if func is Tensor.float else func
            args = tuple(map(_wide, args))
            kwargs = {name: _wide(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
