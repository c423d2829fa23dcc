"""The stage under compute-sanitizer; without a GPU a script stands in for the tool."""

from pathlib import Path

import pytest
import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Tolerance
from kernelyard.core.policy import Policy, Ruling
from kernelyard.core.verdict import Status
from kernelyard.judge import sanitizing
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import End
from kernelyard.judge.sanitizing import check_possible, findings, sanitized, tool
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.launch import SandboxKind, choose
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Post
from kernelyard.suites.kernelbench import load_problem, read_solution

JUDGE = Path(__file__).parents[2] / "examples/judge"
CPU = torch.device("cpu")

REPORT = """========= COMPUTE-SANITIZER
said by the solution
========= Invalid __global__ write of size 4 bytes
=========     at softmax_kernel+0x410 in solution.py:12
=========     by thread (0,0,0) in block (31,0,0)
=========     Address 0x7f is out of bounds
========= ERROR SUMMARY: 32 errors
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def stand_in(folder: Path, report: str) -> Path:
    """Drops its own options, runs the rest, reports."""
    program = folder / "bin" / "compute-sanitizer"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nshift 8\n\"$@\"\ncat <<'END'\n{report}END\n")
    program.chmod(0o755)
    folder.chmod(0o755)
    return program


def look(program: Path, solution: str = "correct") -> object:
    exam = Exam(load_problem(JUDGE / "problem.py"), torch.float32, CPU, Tolerance())
    text = read_solution(JUDGE / f"{solution}.py")
    kind = choose()
    # The stand-in connects to nothing, and where there is no bubblewrap it may as well have no walls.
    return sanitized(
        exam, text, None, Post(SandboxKind.NONE if kind is SandboxKind.NATIVE else kind), Deadlines(), program
    )


DOUBLED = """
import torch
import triton
import triton.language as tl

@triton.jit
def doubled(p_x, p_y, n, BLOCK: tl.constexpr):
    o_x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_x = tl.load(p_x + o_x, mask=o_x < n + {beyond})
    tl.store(p_y + o_x, 2 * b_x, mask=o_x < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        doubled[(1,)](x, y, x.numel(), BLOCK=2048)
        return y
"""
PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x

def get_inputs():
    return [torch.randn(1024)]

def get_init_inputs():
    return []
"""


@pytest.mark.gpu
@pytest.mark.parametrize("beyond", [0, 512])
def test_the_tool_itself_finds_reads_beyond_the_input_and_nothing_else(
    beyond: int, tmp_path: Path, device: torch.device
) -> None:
    """Which change no answer: what was read there is not stored."""
    try:
        program = check_possible(device, choose(None, str(device)))
    except UsageError as error:
        pytest.skip(str(error))
    (problem := tmp_path / "problem.py").write_text(PROBLEM)
    (solution := tmp_path / "solution.py").write_text(DOUBLED.format(beyond=beyond))
    exam = Exam(load_problem(problem), torch.float32, device, Tolerance())
    post = Post(choose(None, str(device)), Limits(), str(device))
    flag = sanitized(exam, read_solution(solution), None, post, Deadlines(), program)
    assert (flag is not None) == bool(beyond)
    assert flag is None or "Invalid __global__ read" in flag.evidence


def test_what_the_report_says() -> None:
    evidence = findings(REPORT)
    assert evidence is not None and "32 errors" in evidence
    assert "Invalid __global__ write of size 4 bytes" in evidence and "solution.py:12" in evidence
    assert "said by" not in evidence
    assert findings(CLEAN) is None and findings("") is None


def test_errors_are_a_flag_and_a_clean_report_is_none(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "good").mkdir()
    flag = look(stand_in(tmp_path / "bad", REPORT))
    assert getattr(flag, "name", None) == "sanitizer"
    assert [policy.ruling("sanitizer") for policy in Policy] == [Ruling.REJECT, Ruling.SHOW, Ruling.SHOW]
    assert look(stand_in(tmp_path / "good", CLEAN)) is None


@pytest.mark.parametrize(("report", "solution"), [("", "correct"), (CLEAN, "kills_itself")])
def test_no_report_is_no_clean_one(tmp_path: Path, report: str, solution: str) -> None:
    with pytest.raises(End) as end:
        look(stand_in(tmp_path, report), solution)
    assert end.value.status is Status.INFRA_ERROR


def test_where_it_is_not_installed_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizing.shutil, "which", lambda *_, **__: None)
    with pytest.raises(UsageError, match="compute-sanitizer is not installed: expected it on PATH"):
        tool()


def test_in_the_native_sandbox_one_line_says_what_it_needs() -> None:
    with pytest.raises(UsageError, match=r"--sanitize: .* expected bubblewrap"):
        check_possible(torch.device("cuda"), SandboxKind.NATIVE)
