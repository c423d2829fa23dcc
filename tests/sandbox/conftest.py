"""Every behaviour is tested under both kinds of walls."""

import tempfile
from pathlib import Path

import pytest

from kernelyard.sandbox.launch import SandboxKind, bubblewrap_problem


@pytest.fixture(params=[SandboxKind.BUBBLEWRAP, SandboxKind.NATIVE], ids=lambda kind: kind.value)
def kind(request: pytest.FixtureRequest) -> SandboxKind:
    if request.param is SandboxKind.BUBBLEWRAP and (problem := bubblewrap_problem()):
        pytest.skip(f"bubblewrap: {problem}")
    return SandboxKind(request.param)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which the judge's side makes its temporary ones, empty at the start."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path
