"""The compile rung outlives what Dynamo looks at beyond the arguments."""

import functools

import pytest
import torch

from kernelyard.kernels.compiled import compiled, compiler_refusal


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


@pytest.mark.parametrize("stance", ["eager_on_recompile", "eager_then_compile", "aot_eager_then_compile"])
def test_a_stance_in_which_a_call_may_run_eagerly_is_refused(stance: str) -> None:
    assert compiler_refusal() is None
    with torch.compiler.set_stance(stance):
        assert compiler_refusal() == f"needs torch.compile's default stance, not '{stance}'"
    assert compiler_refusal() is None


def test_a_stance_that_runs_no_eager_torch_is_taken() -> None:
    with torch.compiler.set_stance("fail_on_recompile"):
        assert compiler_refusal() is None
    with torch.compiler.set_stance(force_backend="inductor"):
        assert compiler_refusal() is None


def test_another_backend_than_inductor_is_refused() -> None:
    with torch.compiler.set_stance(force_backend="eager"):
        assert compiler_refusal() == "needs Inductor, not 'eager', the backend that torch.compile's stance forces"


def test_what_is_switched_off_at_run_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiler_refusal() is None
    with torch._dynamo.config.patch(disable=True):
        assert "torch._dynamo.config.disable switches off" in (compiler_refusal() or "")
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    assert compiler_refusal() == "needs torch.compile, which TORCHDYNAMO_DISABLE=1 switches off"
