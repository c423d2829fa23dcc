"""A whole verdict, in the strongest sandbox that runs here."""

from pathlib import Path
from typing import Any

import torch

from kernelyard.core.problem import Problem, Source
from kernelyard.core.verdict import Verdict
from kernelyard.judge.evaluate import evaluate
from kernelyard.sandbox.launch import SandboxKind, choose
from kernelyard.sandbox.limits import Limits
from kernelyard.suites.kernelbench import load_problem, read_solution

PROBLEM = Path(__file__).parents[2] / "examples/judge/problem.py"
LIMITS = Limits(memory_bytes=3 << 30)


def verdict_on(
    problem: Problem | Path,
    solution: Source | Path,
    device: torch.device,
    *,
    kind: SandboxKind | None = None,
    **more: Any,
) -> Verdict:
    """In float32; `more` is for `evaluate`."""
    return evaluate(
        load_problem(problem) if isinstance(problem, Path) else problem,
        read_solution(solution) if isinstance(solution, Path) else solution,
        device=device,
        dtype=torch.float32,
        sandbox=choose(kind, str(device)),
        limits=LIMITS,
        **more,
    )
