"""How often the judge decides right: a baseline against itself, and against planted gains and losses of 3 %.

    python benchmarks/judge_trials.py [--device cuda] [--pairs 10] [--trials 20] [--planted 10]

A call is a chain of matrix products, about 1 ms long on an H100; the slower solutions multiply more and throw the
products away. A pair is two new worker processes; a trial is a full set of rounds in them, with its own decision.
Prints one line for each kind of trial; exit code 1 where fewer than 95 % decide right.
"""

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

from kernelyard.core.environment import resolve_device
from kernelyard.core.operator import Tolerance
from kernelyard.core.problem import Problem, Source
from kernelyard.core.verdict import Decision
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import Findings
from kernelyard.judge.plan import Plan
from kernelyard.judge.rounds import time_rounds
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Post, Worker
from kernelyard.sandbox.session import Deadlines, Session
from kernelyard.suites.kernelbench import load_problem

# 66 products of 512 x 512 in fp32 are 18 GFLOP, about 1 ms on an H100 without TF32; the inputs are 1 MB, so that a
# trial is mostly calls. On a CPU the chain is of small matrices, to show that the script runs; nothing is claimed of
# its decisions.
PRODUCTS = 66
WASTED = 2
WIDTH = {"cuda": 512, "cpu": 64}

MODEL = """
import torch
import torch.nn as nn

class {name}(nn.Module):
    def forward(self, x):
        y = x
        for _ in range({wasted}):
            y @ x
        for _ in range({products}):
            y = torch.addmm(x, y, x, beta=1.0, alpha={alpha})
        return y

def get_inputs():
    return [torch.randn({width}, {width})]

def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Kind:
    """One kind of trial: how many products baseline and solution waste, and what the decision must be."""

    name: str
    baseline: int
    solution: int
    right: Decision
    trials: int


def source(folder: Path, name: str, wasted: int, width: int) -> Path:
    path = folder / f"{name}_{wasted}.py"
    alpha = 0.5 / width**0.5
    path.write_text(MODEL.format(name=name, wasted=wasted, products=PRODUCTS, width=width, alpha=alpha))
    return path


def trials(kind: Kind, pairs: int, device: torch.device, folder: Path, plan: Plan) -> Counter[Decision]:
    width = WIDTH[device.type]
    problem: Problem = load_problem(source(folder, "Model", kind.baseline, width))
    solution = Source(path := source(folder, "ModelNew", kind.solution, width), path.read_text())
    found: Counter[Decision] = Counter()
    post, deadlines = Post(choose(None, str(device)), Limits(), str(device)), Deadlines()
    ratios = []
    for _ in range(pairs):
        exam = Exam(problem, torch.float32, device, Tolerance())
        question_bytes = exam.first_question().bytes
        with (
            Session(Worker.start(post), device, deadlines) as candidate,
            Session(Worker.start(post), device, deadlines) as baseline,
        ):
            for session, text, name in (
                (candidate, solution, "ModelNew"),
                (baseline, problem.source, "Model"),
            ):
                session.await_start()
                session.load(text.path.name, text.text, name, [], exam.weight_seed, torch.float32, {})
            for _ in range(kind.trials):
                findings = Findings()
                time_rounds(exam, candidate, baseline, plan, findings, question_bytes, lambda _: None)
                assert findings.measured is not None
                found[findings.measured.decision] += 1
                ratios.append(findings.measured.ratio.mean)
    total = sum(found.values())
    shown = ", ".join(f"{decision.value} {count}" for decision, count in found.most_common())
    share = 100 * found[kind.right] / total
    print(
        f"{kind.name:18s} {total:4d} trials in {pairs} pairs: {kind.right.value} {share:.1f} %"
        f" ({shown}); speedup {min(ratios):.4f} to {max(ratios):.4f}",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--trials", type=int, default=20, help="A/A trials a pair")
    parser.add_argument("--planted", type=int, default=10, help="planted trials a pair, of each kind")
    asked = parser.parse_args()
    device = resolve_device(asked.device)
    kinds = (
        Kind("against itself", 0, 0, Decision.TIE, asked.trials),
        Kind("3 % slower", 0, WASTED, Decision.SLOWER, asked.planted),
        Kind("3 % faster", WASTED, 0, Decision.FASTER, asked.planted),
    )
    plan = Plan(outside_repeats=2)
    wrong = False
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            found = trials(kind, asked.pairs, device, Path(folder), plan)
            wrong |= found[kind.right] < 0.95 * sum(found.values())
    sys.exit(int(wrong))


if __name__ == "__main__":
    main()
