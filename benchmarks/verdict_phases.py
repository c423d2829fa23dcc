"""Where a verdict's seconds go: problems' own references judged as solutions, one after another.

    python benchmarks/verdict_phases.py [--device cuda] [--repeat 2] [--functions 0] PROBLEM.py [PROBLEM.py ...]

A line a verdict with its ending, and below it the seconds of each phase. The solution's own are those seconds in
which the judge waits for its worker, from its load on: for its calls, and for what fills the cache before each. All
else is added by the judge, the baseline's calls among it. As in `kernelyard run`, workers are kept waiting, and the
ceilings are measured once. The first of a process also pays for what is done once: the device's context, the
ceilings, workers that are still importing torch. To hold two commits against each other, run them in turn: one
machine's next minute differs by a tenth.
"""

import argparse
import cProfile
import pstats
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kernelyard.core.environment import resolve_device
from kernelyard.core.problem import Source, as_solution
from kernelyard.core.verdict import Phase, Verdict
from kernelyard.judge.evaluate import evaluate
from kernelyard.judge.floor import Remembered
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Pool, Post
from kernelyard.sandbox.session import Session
from kernelyard.suites.kernelbench import load_problem

WARM_SECONDS = 60.0

ceilings = Remembered()


@contextmanager
def candidates() -> Iterator[list[Session]]:
    """The sessions that load a solution meanwhile."""
    found: list[Session] = []
    load = Session.load

    def noted(session: Session, file_name: str, source: str, class_name: str, *rest: Any, **options: Any) -> Any:
        if class_name == "ModelNew":
            found.append(session)
        return load(session, file_name, source, class_name, *rest, **options)

    Session.load = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Session.load = load  # type: ignore[method-assign]


def judged(path: Path, pool: Pool, device: torch.device) -> tuple[Verdict, dict[str, float], int, float]:
    """The verdict on a problem's reference, seconds by phase in the order in which they began, rounds tried, and the
    seconds that are the solution's own."""
    problem = load_problem(path)
    solution = Source(path, as_solution(problem.source))
    spent: dict[str, float] = {}
    now, begun, tried = "the first question", time.monotonic(), 0

    def on_phase(phase: str) -> None:
        nonlocal now, begun, tried
        end = time.monotonic()
        spent[now] = spent.get(now, 0.0) + end - begun
        tried += (is_round := phase.startswith("timing round"))
        now, begun = "timing rounds" if is_round else phase, end

    post = pool.post
    with candidates() as sessions:
        verdict = evaluate(
            problem, solution, device=device, dtype=torch.float32, sandbox=post.kind, limits=post.limits, pool=pool,
            ceilings=ceilings, on_phase=on_phase,
        )  # fmt: skip
    on_phase("the end")
    waits = [(phase, seconds) for session in sessions for phase, seconds in session.awaited().items()]
    return verdict, spent, tried, sum(seconds for phase, seconds in waits if phase is not Phase.START)


def shown(path: Path, verdict: Verdict, spent: dict[str, float], tried: int, own: float) -> str:
    ending = f"{verdict.status.value}, {verdict.decision.value}" if verdict.decision else verdict.status.value
    if verdict.speedup is not None and verdict.noise is not None:
        interval = f"{verdict.speedup_low:.4g}-{verdict.speedup_high:.4g}"
        each = 1e3 * spent["timing rounds"] / tried
        ending += f", {verdict.speedup:.4g}x ({interval}) in {verdict.rounds} rounds of {tried}, {each:.3g} ms each"
        ending += f", noise {100 * verdict.noise:.2g} %"
    phases = "  ".join(f"{phase} {seconds:.2f}" for phase, seconds in spent.items() if seconds >= 0.005)
    whole = sum(spent.values())
    shares = f"{own:.2f} of them the solution's, {whole - own:.2f} added"
    return f"{path.stem}: {whole:.2f} s, {shares}, {ending}\n  {phases}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", type=Path, nargs="+", metavar="PROBLEM.py")
    parser.add_argument("--device")
    parser.add_argument("--repeat", type=int, default=2, help="verdicts on each")
    parser.add_argument("--functions", type=int, default=0, help="of the judge that take longest, to name")
    asked = parser.parse_args()
    if missing := [str(path) for path in asked.problems if not path.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    device = resolve_device(asked.device)
    post = Post(choose(None, str(device)), Limits(), str(device))
    with Pool(post, size=post.ahead) as pool:
        pool.await_warm(WARM_SECONDS)
        for path in asked.problems:
            for _ in range(asked.repeat):
                if not asked.functions:
                    print(shown(path, *judged(path, pool, device)), flush=True)
                    continue
                with cProfile.Profile() as profile:
                    made = judged(path, pool, device)
                print(shown(path, *made))
                pstats.Stats(profile).sort_stats("tottime").print_stats(asked.functions)


if __name__ == "__main__":
    main()
