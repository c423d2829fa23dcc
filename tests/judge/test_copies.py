"""A copy of the reference is no faster and no slower than it, whatever state either worker comes to be in."""

from pathlib import Path

import pytest
import torch

from kernelyard.core.verdict import Decision, Status
from kernelyard.judge.evaluate import evaluate
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.limits import Limits
from kernelyard.suites.kernelbench import load_problem, read_solution

# Answers of 2 MB, which lie in fresh pages or old ones, of two operations whose threads share a core or have two.
REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1).cumsum(1)

def get_inputs():
    return [torch.randn(512, 1024)]

def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_of_copies_none_is_faster_or_slower_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before both workers kept their memory and had their threads apart, 3 of 15 were `faster` by up to 1.35x, and
    others `slower` down to 0.57x."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    problem, solution = tmp_path / "problem.py", tmp_path / "solution.py"
    problem.write_text(REFERENCE)
    solution.write_text(REFERENCE.replace("class Model(", "class ModelNew("))
    verdicts = [
        evaluate(
            load_problem(problem),
            read_solution(solution),
            device=torch.device("cpu"),
            dtype=torch.float32,
            sandbox=choose(None, "cpu"),
            limits=Limits(),
            plan=Plan(seconds=4.0),
        )
        for _ in range(8)
    ]
    assert [verdict.status for verdict in verdicts] == [Status.PASSED] * len(verdicts)
    told = [(verdict.decision, verdict.speedup, verdict.baseline and verdict.baseline.p50_ms) for verdict in verdicts]
    assert {decision for decision, _, _ in told} <= {Decision.TIE, Decision.INCONCLUSIVE}, told
