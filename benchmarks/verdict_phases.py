"""Where a verdict's seconds go: solutions, else problems' own references, judged one after another.

    python benchmarks/verdict_phases.py [--device cuda] [--repeat 2] [--functions 0] PROBLEM.py[:SOLUTION.py] ...

A line a verdict with its ending, and below it the seconds of each phase, and how often and how long workers were
waited for, by what was asked. The solution's own are those seconds in which the judge waits for its worker, from its
load on: for its calls, and for what fills the cache before each; and those in which its worker still constructs it
while the judge waits for the baseline's. All else is added by the judge; of that, the baseline's are those in which it
waits for a worker with the reference, whose calls are as many as the solution's. As in `kernelyard run`, workers are
kept waiting, and the ceilings are measured once. The first of a process also pays for what is done once: the device's
context, the ceilings, what the judge imports at its first use. To hold two commits against each other, run them in
turn: one machine's next minute differs by a tenth.
"""

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
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
from kernelyard.suites.kernelbench import load_problem, read_solution

WARM_SECONDS = 60.0
Judged = tuple[Verdict, dict[str, float], int, "Requests"]

ceilings = Remembered()


@dataclass
class Requests:
    """What was asked of workers."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Each wait for an answer, by what was asked; of both sides."""
    sessions: dict[str, list[Session]] = field(default_factory=dict)
    """Those that loaded a class, by its name."""
    beside: dict[Session, float] = field(default_factory=dict)
    """Seconds from when a worker was asked to load until it was waited for, where it was not through then."""

    def waited_for(self, loaded: str) -> float:
        """Seconds in which the workers that loaded this class were waited for, from their load on."""
        waits = [session.awaited() for session in self.sessions.get(loaded, [])]
        return sum(wait for each in waits for phase, wait in each.items() if phase is not Phase.START)

    def constructed_beside(self, loaded: str) -> float:
        """Seconds in which those workers constructed it while the judge did something else."""
        return sum(self.beside.get(session, 0.0) for session in self.sessions.get(loaded, []))

    def __str__(self) -> str:
        longest = sorted(self.seconds.items(), key=lambda item: -sum(item[1]))
        return "  ".join(f"{name} {len(waits)} x {1e3 * sum(waits) / len(waits):.2g} ms" for name, waits in longest)


@contextmanager
def watched() -> Iterator[Requests]:
    """What is asked of workers meanwhile."""
    found = Requests()
    ask, begin_load, await_load = Session._ask, Session.begin_load, Session.await_load
    asked_at: dict[Session, float] = {}

    def waited(name: str, wait: Callable[[], Any]) -> Any:
        begin = time.monotonic()
        try:
            return wait()
        finally:
            found.seconds.setdefault(name, []).append(time.monotonic() - begin)

    def noted(session: Session, do: str, shared: Any = None, **asked: Any) -> Any:
        kind = asked.get("manner") or asked.get("what")
        return waited(f"{do} {kind}" if kind else do, partial(ask, session, do, shared, **asked))

    def begun(session: Session, file: str, source: str, name: str, *asked: Any, **how: Any) -> None:
        found.sessions.setdefault(name, []).append(session)
        begin_load(session, file, source, name, *asked, **how)
        asked_at[session] = time.monotonic()

    def loaded(session: Session) -> Any:
        if not session.channel.is_readable():
            found.beside[session] = time.monotonic() - asked_at[session]
        return waited("load", partial(await_load, session))

    Session._ask = noted  # type: ignore[method-assign]
    Session.begin_load = begun  # type: ignore[method-assign]
    Session.await_load = loaded  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Session._ask, Session.begin_load, Session.await_load = ask, begin_load, await_load  # type: ignore[method-assign]


def judged(path: Path, own: Path | None, pool: Pool, device: torch.device) -> Judged:
    """The verdict on a solution, or the problem's reference, seconds by phase in the order in which they began, rounds
    tried, and what was asked of workers."""
    problem = load_problem(path)
    solution = Source(path, as_solution(problem.source)) if own is None else read_solution(own)
    spent: dict[str, float] = {}
    now, begun, tried = "the first question", time.monotonic(), 0

    def on_phase(phase: str) -> None:
        nonlocal now, begun, tried
        end = time.monotonic()
        spent[now] = spent.get(now, 0.0) + end - begun
        tried += (is_round := phase.startswith("timing round"))
        now, begun = "timing rounds" if is_round else phase, end

    post = pool.post
    with watched() as requests:
        verdict = evaluate(
            problem, solution, device=device, dtype=torch.float32, sandbox=post.kind, limits=post.limits, pool=pool,
            ceilings=ceilings, on_phase=on_phase,
        )  # fmt: skip
    on_phase("the end")
    return verdict, spent, tried, requests


def shown(name: str, verdict: Verdict, spent: dict[str, float], tried: int, requests: Requests) -> str:
    ending = f"{verdict.status.value}, {verdict.decision.value}" if verdict.decision else verdict.status.value
    if verdict.speedup is not None and verdict.noise is not None:
        interval = f"{verdict.speedup_low:.4g}-{verdict.speedup_high:.4g}"
        each = 1e3 * spent["timing rounds"] / tried
        ending += f", {verdict.speedup:.4g}x ({interval}) in {verdict.rounds} rounds of {tried}, {each:.3g} ms each"
        ending += f", noise {100 * verdict.noise:.2g} %"
    phases = "  ".join(f"{phase} {seconds:.2f}" for phase, seconds in spent.items() if seconds >= 0.005)
    own = requests.waited_for("ModelNew") + requests.constructed_beside("ModelNew")
    whole, baseline = sum(spent.values()), requests.waited_for("Model")
    shares = f"{own:.2f} of them the solution's, {whole - own:.2f} added, of which {baseline:.2f} the baseline's"
    return f"{name}: {whole:.2f} s, {shares}, {ending}\n  {phases}\n  waits: {requests}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", metavar="PROBLEM.py[:SOLUTION.py]")
    parser.add_argument("--device")
    parser.add_argument("--repeat", type=int, default=2, help="verdicts on each")
    parser.add_argument("--functions", type=int, default=0, help="of the judge that take longest, to name")
    asked = parser.parse_args()
    pairs = [[Path(name) for name in pair.split(":", 1)] for pair in asked.pairs]
    if missing := [str(path) for pair in pairs for path in pair if not path.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    device = resolve_device(asked.device)
    post = Post(choose(None, str(device)), Limits(), str(device))
    with Pool(post, size=post.ahead) as pool:
        pool.await_warm(WARM_SECONDS)
        for path, *own in pairs:
            for _ in range(asked.repeat):
                with cProfile.Profile() if asked.functions else nullcontext() as profile:
                    made = judged(path, own[0] if own else None, pool, device)
                print(shown(own[0].stem if own else path.stem, *made), flush=True)
                if profile is not None:
                    pstats.Stats(profile).sort_stats("tottime").print_stats(asked.functions)


if __name__ == "__main__":
    main()
