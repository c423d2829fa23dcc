"""The TorchScript rung settles without its caller noticing."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from kernelyard.kernels.scripted import scripted


def _half_square(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * x * y.exp()


def _views() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A leaf, a transposed view that autograd knows the origin of, and a tensor that wants nothing."""
    leaf = torch.randn(6, 4, requires_grad=True)
    return leaf, (2 * leaf)[::2].mT, torch.randn(4, 3)


def test_hooks_fire_for_the_callers_backward_alone() -> None:
    call = scripted(_half_square)
    fired: list[str] = []
    leaf, view, other = _views()
    leaf.register_hook(lambda _: fired.append("leaf"))
    view.register_hook(lambda _: fired.append("view"))
    y = call(view, other)
    assert not fired and leaf.grad is None
    y.sum().backward()
    assert fired == ["view", "leaf"]
    assert leaf.grad is not None


def test_a_first_call_saves_as_many_tensors_as_a_second() -> None:
    call = scripted(_half_square)
    saved: list[int] = []
    counts = []
    for _ in range(2):
        _, view, other = _views()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(1) or t, lambda t: t):
            call(view, other)
        counts.append(len(saved))
        saved.clear()
    assert counts[0] == counts[1] > 0


def test_activations_of_a_first_call_may_be_computed_again() -> None:
    """Not with the early stop, an exception that TorchScript's interpreter makes another of."""
    call = scripted(_half_square)
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    with set_checkpoint_early_stop(False):
        (got,) = torch.autograd.grad(checkpoint(call, x, y, use_reentrant=False).sum(), x)
    assert torch.allclose(got, 2 * x * y.exp())


def test_it_settles_on_the_strides_it_is_called_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchScript specialises on them: a copy's would be profiled in vain."""
    seen = []
    script = torch.jit.script(_half_square)

    def watching(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append((x.shape, x.stride(), x.data_ptr(), x.requires_grad))
        return script(x, y)

    monkeypatch.setattr(torch.jit, "script", lambda _: watching)
    _, view, other = _views()
    scripted(_half_square)(view, other)
    assert len(seen) > 1 and set(seen) == {(view.shape, view.stride(), view.data_ptr(), True)}
