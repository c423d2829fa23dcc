"""What is kept of proofs: of two sweeps that share a size, each is timed in all that was proved."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelyard.bench import prove as proving
from kernelyard.bench.prove import Proofs
from kernelyard.core.workload import Mode


def test_a_forward_alone_unproves_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """rope's sweep of the host's time has a size that its first one has, too: backward was left out there."""
    monkeypatch.setattr(proving, "prove", lambda *_, gradients: SimpleNamespace(walks_once=False, passed=True))
    proofs = Proofs(*[SimpleNamespace()] * 2, torch.device("cpu"), print)  # type: ignore[arg-type]
    backend: Any = SimpleNamespace(backend="triton")
    for gradients in (True, False):
        point: Any = SimpleNamespace(workload="a size", gradients=gradients, modes=(Mode.FORWARD,))
        proofs._add(point, backend, None, alone=True)  # type: ignore[arg-type]
    assert proofs._passed == {("a size", "triton"): True}
