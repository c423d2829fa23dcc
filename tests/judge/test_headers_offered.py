"""That what is built is offered torch's headers parsed: by $CPATH, in a folder that the compile worker may read."""

from pathlib import Path
from typing import Any

import pytest
import torch

from kernelyard.core.problem import Source
from kernelyard.judge import compiling
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.launch import SandboxError, SandboxKind
from kernelyard.sandbox.pool import Post, Worker

BUILDS = Source(Path("s.py"), "from torch.utils.cpp_extension import load_inline")


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How each compile worker is started, which then cannot be."""
    given: list[dict[str, Any]] = []

    def start(post: Post, under: tuple[str, ...] = (), **more: Any) -> Worker:
        given.append({"post": post, "under": under, **more})
        raise SandboxError("as far as it goes here")

    monkeypatch.setattr(Worker, "start", start)
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path))
    return given


@pytest.mark.parametrize("made", [True, False])
def test_a_build_is_given_the_folder_where_there_is_one(
    started: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    monkeypatch.setattr(compiling, "precompiled", lambda: tmp_path / "headers" if made else None)
    post = Post(SandboxKind.BUBBLEWRAP, device="cuda:0")
    compiling.build(BUILDS, post, torch.device("cpu"), Deadlines())
    (worker,) = started
    assert worker["environment"] == ({"CPATH": str(tmp_path / "headers")} if made else {})
    assert worker["readable"] == ((tmp_path / "headers",) if made else ())
    assert worker["post"].device == "cpu", "a build needs no device"
