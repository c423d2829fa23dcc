"""The vendor's libraries are begun before a call needs them, where there is a GPU."""

import subprocess
import sys

import pytest
import torch

from kernelyard.sandbox import libraries

MAPPED = """
import torch
from kernelyard.sandbox import libraries

def mapped():
    with open("/proc/self/maps") as file:
        return {line.split("/")[-1].strip() for line in file if "libcudnn" in line}

torch.zeros(1, device="cuda")
before = mapped()
libraries.begin(torch.device("cuda"))
print(*sorted(mapped() - before))
"""


def test_a_cpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*_: object) -> None:
        raise AssertionError("nothing is to be computed")

    monkeypatch.setattr(torch.nn.functional, "conv2d", called)
    libraries.begin(torch.device("cpu"))


@pytest.mark.gpu
def test_a_gpus_are_loaded_then() -> None:
    ran = subprocess.run([sys.executable, "-c", MAPPED], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "libcudnn" in ran.stdout
