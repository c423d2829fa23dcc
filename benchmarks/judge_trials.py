"""How often the judge decides right: a baseline against itself, and against planted gains and losses of 3 %.

    python benchmarks/judge_trials.py [--device cuda] [--gpus 1] [--json FILE]
        [--itself 200] [--gains 100] [--losses 100]

A call is a loop in registers, about 1 ms long on an H100; the slower program takes 3 % more steps to the same answer.
A trial is a whole verdict, with new processes on both sides, the checks, and the baseline alone at its end. Several
GPUs share the trials, and a kind of which none are asked is left out.
Prints one line for each kind of trial, and each trial to stderr; exit code 1 where fewer than 95 % decide right. FILE
gets every verdict, a line of JSON each, with all samples: where a decision is wrong, they say why.
"""

import argparse
import math
import multiprocessing
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from kernelyard.core.environment import resolve_devices
from kernelyard.core.interrupts import end_with_parent
from kernelyard.core.problem import Problem, Source
from kernelyard.core.verdict import Decision
from kernelyard.judge.evaluate import evaluate
from kernelyard.judge.floor import Remembered
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Pool, Post
from kernelyard.suites.kernelbench import load_problem

WARM_SECONDS = 60.0
# A loop in registers: 32000 steps are 1 ms on an H100, and a step more is that much more. Not memory: of a chain of 66
# additions of 17 MB, which just about fit the L2, two processes' times differ for good by up to 1.5 % on an H200, as
# their pages lie. Of 3 % planted there, 40 of 50 losses were found and 7 of 50 gains, half of which came out below 2 %.
# The sum no longer changes after 30 steps. A CPU adds in torch, to show that the script runs; nothing is claimed of its
# decisions. Multiples of 16, for which Triton builds one kernel.
STEPS = {"cuda": 32000, "cpu": 1600}
MORE = 0.03
WIDTH = {"cuda": 1024, "cpu": 64}

LOOPS = {
    "cuda": """
import triton
import triton.language as tl

@triton.jit
def halves(p_x, p_y, steps, BLOCK: tl.constexpr):
    o_x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_x = tl.load(p_x + o_x)
    b_y = b_x
    for _ in range(steps):
        b_y = b_y * 0.5 + b_x
    tl.store(p_y + o_x, b_y)

def looped(x, steps):
    y = torch.empty_like(x)
    halves[(x.numel() // 1024,)](x, y, steps, BLOCK=1024)
    return y
""",
    "cpu": """
def looped(x, steps):
    y = x
    for _ in range(steps):
        y = torch.add(x, y, alpha=0.5)
    return y
""",
}

MODEL = """
import torch
import torch.nn as nn
{loop}
class {name}(nn.Module):
    def forward(self, x):
        return looped(x, {steps})

def get_inputs():
    return [torch.randn({width}, {width})]

def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Kind:
    """One kind of trial: by how much longer baseline and solution loop, what the decision must be, and how many."""

    name: str
    baseline: float
    solution: float
    right: Decision
    trials: int


def source(folder: Path, name: str, more: float, device: str) -> Path:
    path = folder / f"{name}_{more:g}.py"
    steps = 16 * round(STEPS[device] * (1 + more) / 16)
    path.write_text(MODEL.format(name=name, loop=LOOPS[device], steps=steps, width=WIDTH[device]))
    return path


def trials(kind: Kind, count: int, device: torch.device, folder: Path, record: Path | None) -> list[tuple[str, float]]:
    """Decision and speedup of each of `count` verdicts, which are added to `record`; of one that did not pass, its
    status."""
    problem: Problem = load_problem(source(folder, "Model", kind.baseline, device.type))
    solution = Source(path := source(folder, "ModelNew", kind.solution, device.type), path.read_text())
    post, ceilings = Post(choose(None, str(device)), Limits(), str(device)), Remembered()
    found: list[tuple[str, float]] = []
    with Pool(post, size=post.ahead) as pool:
        pool.await_warm(WARM_SECONDS)
        for _ in range(count):
            verdict = evaluate(
                problem, solution, device=device, dtype=torch.float32, sandbox=post.kind, limits=post.limits, pool=pool,
                ceilings=ceilings,
            )  # fmt: skip
            decided = verdict.decision or verdict.status
            found.append((decided.value, verdict.speedup or math.nan))
            said = f"speedup {found[-1][1]:.4f}, {verdict.rounds} rounds" if verdict.decision else verdict.message
            print(f"{kind.name}: {found[-1][0]}, {said}", file=sys.stderr, flush=True)
            if record is not None:
                with record.open("a") as file:
                    file.write(verdict.model_dump_json() + "\n")
    return found


def shown(kind: Kind, found: list[tuple[str, float]]) -> str:
    counts = Counter(decision for decision, _ in found)
    ratios = [ratio for _, ratio in found if not math.isnan(ratio)] or [math.nan]
    share = 100 * counts[kind.right.value] / len(found)
    said = ", ".join(f"{decision} {count}" for decision, count in counts.most_common())
    return (
        f"{kind.name:18s} {len(found):4d} verdicts: {kind.right.value} {share:.1f} %"
        f" ({said}); speedup {min(ratios):.4f} to {max(ratios):.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--gpus", type=int, default=1, help="devices that share the trials of a kind")
    parser.add_argument("--itself", type=int, default=200, help="verdicts on the baseline itself")
    parser.add_argument("--gains", type=int, default=100, help="verdicts with a gain planted")
    parser.add_argument("--losses", type=int, default=100, help="and with a loss")
    parser.add_argument("--json", type=Path, help="a file to which every verdict is added")
    asked = parser.parse_args()
    devices = resolve_devices(asked.device, asked.gpus)
    kinds = (
        Kind("against itself", 0, 0, Decision.TIE, asked.itself),
        Kind("3 % faster", MORE, 0, Decision.FASTER, asked.gains),
        Kind("3 % slower", 0, MORE, Decision.SLOWER, asked.losses),
    )
    spawn = multiprocessing.get_context("spawn")
    wrong = False
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in devices]
        seats = [
            stack.enter_context(ProcessPoolExecutor(1, mp_context=spawn, initializer=end_with_parent)) for _ in devices
        ]
        for kind in filter(lambda kind: kind.trials, kinds):
            shares = [kind.trials // len(devices) + (i < kind.trials % len(devices)) for i in range(len(devices))]
            begun = [
                seat.submit(trials, kind, share, device, folder, asked.json)
                for seat, share, device, folder in zip(seats, shares, devices, folders, strict=True)
                if share
            ]
            found = [each for future in begun for each in future.result()]
            print(shown(kind, found), flush=True)
            wrong |= sum(decision == kind.right.value for decision, _ in found) < 0.95 * len(found)
    sys.exit(int(wrong))


if __name__ == "__main__":
    main()
