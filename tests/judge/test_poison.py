"""Memory that nobody wrote shows in a proof, and a proof leaves nothing behind that a clock would see."""

from functools import partial

import torch
from torch.utils._device import _device_constructors

from kernelyard.judge.poison import poisoned_empty


def test_inside_nothing_is_left_to_chance() -> None:
    with poisoned_empty():
        assert torch.empty(3).isnan().all()
        assert torch.empty_like(torch.ones(3)).isnan().all()
        assert torch.ones(1).new_empty(3).isnan().all()
        assert (torch.empty(3, dtype=torch.int8) == 127).all()


def test_what_was_bound_inside_allocates_as_ever_outside() -> None:
    """Prepared closures and Inductor's modules keep the function they found: once, norms ran at 67 %."""
    with poisoned_empty():
        kept = [torch.empty, partial(torch.empty_strided, (3,), (1,))]
    filled: list[str] = []
    fill = torch.Tensor.fill_

    def seen(self: torch.Tensor, value: float) -> torch.Tensor:
        filled.append("fill_")
        return fill(self, value)

    torch.Tensor.fill_ = seen  # type: ignore[method-assign,assignment]
    try:
        kept[0](3)
        kept[1]()
        assert not filled
        with poisoned_empty():
            torch.empty(3)
        assert filled == ["fill_"]
    finally:
        torch.Tensor.fill_ = fill  # type: ignore[method-assign]


def test_a_device_as_a_context_still_knows_what_allocates() -> None:
    _device_constructors.cache_clear()
    with poisoned_empty(), torch.device("meta"):
        torch.zeros(2)
    with torch.device("meta"):
        assert torch.empty(2).is_meta
