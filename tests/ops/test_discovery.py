"""The library finds its operators and backends by looking at its folders."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kernelyard
import kernelyard.ops as ops
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.ops import discovery


def test_every_operator_has_its_definition_and_its_public_function() -> None:
    assert ops.operator_names()
    for name in ops.operator_names():
        assert ops.definition(name).name == name
        assert callable(getattr(ops, name))


def test_every_operator_has_every_backend_in_the_ladders_order() -> None:
    for name in ops.operator_names():
        assert ops.backends(name) == list(Backend)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown operator 'sofmax': did you mean 'softmax'"):
        ops.definition("sofmax")
    with pytest.raises(UsageError, match="unknown backend 'tritn': did you mean 'triton'"):
        ops.backend_module("softmax", "tritn")
    with pytest.raises(UsageError, match="unknown backend 'cuad': did you mean 'cuda'"):
        ops.softmax(torch.zeros(3), backend="cuad")


@pytest.mark.parametrize(
    ("definition", "eager", "said"),
    [
        ("", "", "ops/begun/definition.py defines no DEFINITION; expected DEFINITION"),
        ("def", "", "ops/begun/definition.py cannot be imported: SyntaxError: "),
        ("DEFINITION = 1", "", "ops/begun/eager.py defines no begun and no refusal; expected begun and refusal"),
        ("DEFINITION = 1", "begun = nothing", "ops/begun/eager.py cannot be imported: NameError: "),
    ],
)
def test_a_folder_that_is_only_begun_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, definition: str, eager: str, said: str
) -> None:
    """`kernelyard list` was a traceback for everybody while somebody wrote an operator."""
    folder = tmp_path / "begun"
    folder.mkdir()
    for file, text in (("__init__", ""), ("definition", definition), ("eager", eager)):
        (folder / f"{file}.py").write_text(text)
    monkeypatch.setattr(discovery, "_ROOT", tmp_path)
    monkeypatch.setattr(ops, "__path__", [*ops.__path__, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    try:
        with pytest.raises(UsageError, match=re.escape(said)):
            discovery.definition("begun")
            discovery.backend_module("begun", "eager")
    finally:
        for name in [name for name in sys.modules if name.startswith("kernelyard.ops.begun")]:
            del sys.modules[name]


def test_source_files_hold_the_cuda_cpp() -> None:
    names = [path.name for path in ops.source_files("softmax", Backend.CUDA)]
    assert "cuda.py" in names
    assert "rows.cu" in names
    assert [path.name for path in ops.source_files("softmax", "eager")] == ["eager.py"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("softmax", "ops/softmax"),
        ("rms_norm", "kernels/norms"),
        ("layer_norm", "kernels/norms"),
        ("geglu", "kernels/glu"),
    ],
)
def test_source_files_hold_the_kernels_that_a_family_shares_and_no_others(name: str, folder: str) -> None:
    root = Path(kernelyard.__file__).parent
    module, *sources = ops.source_files(name, Backend.CUDA)
    assert module == root / "ops" / name / "cuda.py"
    assert sources and set(sources) == set((root / folder).glob("*.cu*"))


@pytest.mark.parametrize("name", ops.operator_names())
def test_every_cuda_backend_has_a_kernel_to_show(name: str) -> None:
    if Backend.CUDA in ops.backends(name):
        assert any(path.suffix == ".cu" for path in ops.source_files(name, Backend.CUDA))


def test_the_public_name_stays_a_function_when_a_backend_is_imported() -> None:
    code = (
        "import sys, kernelyard.ops as ops\n"
        "assert 'triton' not in sys.modules and 'cuda.core' not in sys.modules, 'a compiler was imported'\n"
        "from kernelyard.ops.softmax import triton\n"
        "import torch\n"
        "assert ops.softmax(torch.zeros(2)).tolist() == [0.5, 0.5]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
