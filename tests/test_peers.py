"""Foreign libraries: found by their files, optional, and never in the way of anything."""

import subprocess
import sys
import types

import pytest
import torch

from kernelyard import ops
from kernelyard.core.errors import UsageError
from kernelyard.suites.library import PeerAbsent, implementation, peer


@pytest.fixture
def stub(monkeypatch):
    """A library `liger_kernel` of softmax alone, whose answer is marked."""

    class Function:
        @staticmethod
        def apply(x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x, -1) + 1

    module = types.ModuleType("liger_kernel.ops.softmax")
    module.LigerSoftmaxFunction = Function  # type: ignore[attr-defined]
    for name in ("liger_kernel", "liger_kernel.ops"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "liger_kernel.ops.softmax", module)
    yield
    sys.modules.pop("kernelyard.ops.softmax.peer_liger", None)


def test_peers_are_the_files_of_their_name() -> None:
    assert ops.peers("softmax") == ["inductor", "liger", "quack"]
    assert not {"liger", "quack"} & {backend.value for backend in ops.backends("softmax")}
    with pytest.raises(UsageError, match="unknown peer of softmax 'ligr': did you mean 'liger'"):
        ops.peer_module("softmax", "ligr")


def test_every_operator_stands_beside_what_inductor_makes_of_the_plain_lines() -> None:
    assert [name for name in ops.operator_names() if "inductor" not in ops.peers(name)] == []


def test_a_library_that_is_not_there_is_one_line_that_says_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    with pytest.raises(PeerAbsent, match=r"^liger is not installed here: pip install liger-kernel \(.*\)$"):
        peer("softmax", "liger")


def test_a_library_that_is_there_is_one_more_implementation(stub) -> None:
    found = peer("softmax", "liger")
    x = torch.zeros(1, 2)
    assert found.backend == "liger"
    assert found.call(x, -1).tolist() == [[1.5, 1.5]]
    assert found.refusal(x, 0) == "takes the last dim of a tensor that is not empty"
    assert found.refusal(torch.zeros(2, 65537), -1) == "takes rows of up to 65536, not 65537"
    assert [path.name for path in found.source_files] == ["peer_liger.py"]
    assert found.note == "" and implementation("softmax", "eager").note == ""


def test_the_library_imports_no_peer() -> None:
    code = (
        "import sys, kernelyard.ops, kernelyard.nn, kernelyard.suites.library\n"
        "assert not {'liger_kernel', 'quack', 'cutlass'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
