"""Precompiled headers: taken where they serve, passed over where they do not, and nothing built shows which."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from kernelyard.judge import headers
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.launch import SandboxKind, bubblewrap_problem
from kernelyard.sandbox.pool import Post

pytestmark = pytest.mark.skipif(
    not (shutil.which("ninja") and shutil.which("c++")), reason="needs ninja and a compiler"
)
HEADER = """
#pragma once
#include <vector>
template <typename T> T twice(const std::vector<T>& x) { return x[0] + x[1]; }
"""
MAIN = """
#include <torch/extension.h>
int TORCH_EXTENSION_NAME() { return twice(std::vector<int>{1, 2}); }
"""


@pytest.fixture
def include(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A torch whose header is small: torch's own takes 30 s."""
    header = tmp_path / "torch/include/torch/extension.h"
    header.parent.mkdir(parents=True)
    header.write_text(HEADER)
    monkeypatch.setattr(torch, "__path__", [str(tmp_path / "torch")])
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "cache"))
    options = ["-isystem", str(header.parents[1]), "-fPIC", "-std=c++17"]
    monkeypatch.setattr(headers, "_options", lambda _: options)
    headers._folder.cache_clear()
    return header.parents[1]


def compile_(folder: Path, include: Path, options: list[str], cpath: Path | None) -> tuple[bytes, bool]:
    """The object, and whether the precompiled header was taken."""
    (folder / "main.cpp").write_text(MAIN)
    command = ["c++", "-isystem", str(include), "-fPIC", "-std=c++17", *options, "-DTORCH_EXTENSION_NAME=mine", "-H"]
    environment = {**os.environ, **({"CPATH": str(cpath)} if cpath else {})}
    done = subprocess.run(
        [*command, "-c", "main.cpp", "-o", "main.o"], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return (folder / "main.o").read_bytes(), any(line.startswith("! ") for line in done.stderr.splitlines())


def test_what_is_built_is_the_same_to_the_byte(include: Path, tmp_path: Path) -> None:
    assert headers.precompiled() is None
    folder = headers.precompile()
    assert folder is not None and headers.precompiled() == folder == headers.precompile()
    for options, served in (([], True), (["-O2"], True), (["-O3"], True), (["-g"], False), (["-std=c++20"], False)):
        without, taken = compile_(tmp_path, include, options, None)
        assert not taken
        built, taken = compile_(tmp_path, include, options, folder)
        assert (built == without, taken) == (True, served), options


def test_a_header_that_cannot_be_compiled_leaves_nothing(include: Path, tmp_path: Path) -> None:
    (include / headers._HEADER).write_text("#error no\n")
    assert headers.precompile() is None
    assert list((tmp_path / "cache/headers").iterdir()) == []


def test_stopped_it_leaves_nothing(include: Path, tmp_path: Path) -> None:
    assert headers.precompile(lambda: True) is None
    assert list((tmp_path / "cache/headers").iterdir()) == []


def test_stopped_midway_no_compiler_goes_on(include: Path, tmp_path: Path) -> None:
    long = "constexpr int f() { int s = 0; for (int i = 0; i < 9'000'000; ++i) s ^= i; return s; }"
    (include / headers._HEADER).write_text(f"{long}\nconstexpr int x = f();\n")

    def compilers() -> list[str]:
        lines = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is no process
                lines.append((path / "cmdline").read_bytes().decode(errors="replace"))
        return [line for line in lines if "cc1plus" in line and str(tmp_path) in line]

    seen: list[list[str]] = []

    def stopped() -> bool:
        seen.append(compilers())
        return bool(seen[-1])

    assert headers.precompile(stopped) is None
    assert seen[-1], "the compiler proper was never seen, so nothing is shown"
    assert compilers() == []


def test_torchs_builder_tells_its_options(tmp_path: Path) -> None:
    options = headers._options(tmp_path)
    assert options is not None and "-fPIC" in options and any(each.startswith("-std=") for each in options)
    assert not any(each.startswith(("-DTORCH_EXTENSION_NAME", headers._REFUSED)) for each in options)


def test_a_compile_worker_is_offered_them_and_cannot_write_there(include: Path) -> None:
    if problem := bubblewrap_problem():
        pytest.skip(f"bubblewrap: {problem}")
    folder = headers.precompile()
    source = (
        "import os, pathlib\n"
        "folder = pathlib.Path(os.environ['CPATH'], 'torch/extension.h.gch')\n"
        "assert sorted(path.name for path in folder.iterdir()) == ['optimised', 'plain']\n"
        "try:\n    (folder / 'plain').write_bytes(b'mine')\n"
        "except OSError:\n    raise RuntimeError('Error building extension: read-only') from None\n"
    )
    from kernelyard.core.problem import Source
    from kernelyard.judge.compiling import build

    post = Post(SandboxKind.BUBBLEWRAP)
    outcome = build(Source(Path("s.py"), source + "# load_inline"), post, torch.device("cpu"), Deadlines())
    assert outcome.end is not None and "read-only" in outcome.end[2]
    assert folder is not None and (folder / "torch/extension.h.gch/plain").stat().st_size > 1000
