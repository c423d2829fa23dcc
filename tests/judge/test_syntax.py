"""What is no Python is told without a worker, and without the device."""

from pathlib import Path

import pytest
import torch
from judged_here import PROBLEM, verdict_on

from kernelyard.core.problem import Source
from kernelyard.core.verdict import Phase, Status, Verdict
from kernelyard.judge import evaluate as judging
from kernelyard.sandbox.pool import Pool


def judge(text: str, device: torch.device) -> Verdict:
    return verdict_on(PROBLEM, Source(Path("solution.py"), text), device)


@pytest.mark.parametrize(
    "head", ["", "\ufeff", "import torch.utils.cpp_extension\n"], ids=["plain", "marked", "builds"]
)
def test_what_is_no_python_takes_no_worker_and_no_turn(
    head: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "take", lambda _: pytest.fail("a worker was taken"))
    monkeypatch.setattr(judging, "turn", lambda *_: pytest.fail("a device was waited for"))
    verdict = judge(f"{head}class ModelNew(:\n", device)
    assert (verdict.status, verdict.phase) == (Status.COMPILE_ERROR, Phase.COMPILE)
    assert verdict.message.startswith("SyntaxError: invalid syntax") and "solution.py, line" in verdict.message


def test_what_only_a_compiler_refuses_is_a_compile_error_too(device: torch.device) -> None:
    verdict = judge("class ModelNew: ...\nreturn\n", device)
    assert verdict.status is Status.COMPILE_ERROR and "outside function" in verdict.message
