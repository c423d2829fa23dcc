"""Triton's compiler takes every kernel, for NVIDIA's GPUs and AMD's: of that the interpreter says nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plain_calls import cases

from kernelyard.core.operator import Backend


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(("cuda", "90", "32"), id="H100"),
        pytest.param(("cuda", "80", "32"), id="A100", marks=pytest.mark.slow),
        pytest.param(("hip", "gfx942", "64"), id="MI300X", marks=pytest.mark.slow),
    ],
)
def test_every_operator_compiles_for_a_gpu_that_is_not_here(target: tuple[str, str, str], tmp_path: Path) -> None:
    script = Path(__file__).with_name("compile_for.py")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run([sys.executable, script, *target], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compiled = json.loads(done.stdout.splitlines()[-1])
    written = {case.values[0].name for case in cases((Backend.TRITON,))}
    # One kernel forward and one backward at the least.
    assert {name for name, kernels in compiled.items() if sum(kernels.values()) >= 2} == written
