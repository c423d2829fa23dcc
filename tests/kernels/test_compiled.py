"""The compile rung outlives what Dynamo looks at beyond the arguments."""

import functools

import pytest
import torch

from kernelyard.kernels.compiled import compiled


def test_another_global_state_is_compiled_for_however_many_shapes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape that is known already is called without the limits that a new one gets."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    call = compiled(lambda x: x + 1)
    for size in range(2, 14):
        call(torch.ones(size))
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(call(torch.ones(3)), torch.full((3,), 2.0))
    finally:
        torch.use_deterministic_algorithms(False)
