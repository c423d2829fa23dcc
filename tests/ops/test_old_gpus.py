"""A GPU that NVRTC does not compile for, by a fake tensor on one: Triton serves it, a named backend says why."""

from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelyard import ops
from kernelyard.core.errors import UsageError
from kernelyard.kernels import support
from kernelyard.ops import dispatch


@pytest.fixture
def v100(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.Tensor]:
    """A tensor on one."""
    monkeypatch.setattr(support, "_capability", lambda _: (7, 0))
    monkeypatch.setattr(dispatch, "_accepted", {})
    with FakeTensorMode():
        yield torch.empty(4, 8, device="cuda")


def test_a_named_backend_names_the_capability_that_it_needs(v100: torch.Tensor) -> None:
    """It was NVRTC's 'invalid value for --gpu-architecture', with a log."""
    with pytest.raises(UsageError) as refused:
        ops.softmax(v100, backend="cuda")
    assert str(refused.value) == (
        "the cuda backend of softmax does not take this input:"
        " needs a GPU of compute capability 7.5 or later, this one has 7.0"
    )


def test_a_call_that_names_none_runs_on_triton(v100: torch.Tensor) -> None:
    assert dispatch.implementation("softmax", None, v100, -1) is ops.backend_module("softmax", "triton").softmax


def test_the_oldest_that_is_compiled_for_is_served(v100: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "_capability", lambda _: (7, 5))
    assert dispatch.implementation("softmax", None, v100, -1) is ops.backend_module("softmax", "cuda").softmax
