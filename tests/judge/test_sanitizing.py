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
from kernelyard.judge.sanitizing import findings, sanitized, tool
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.launch import choose
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
    program.write_text(f"#!/bin/sh\nshift 6\n\"$@\"\ncat <<'END'\n{report}END\n")
    program.chmod(0o755)
    folder.chmod(0o755)
    return program


def look(program: Path, solution: str = "correct") -> object:
    exam = Exam(load_problem(JUDGE / "problem.py"), torch.float32, CPU, Tolerance())
    text = read_solution(JUDGE / f"{solution}.py")
    return sanitized(exam, text, None, Post(choose()), Deadlines(), program)


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
