"""Verdicts and suites that nobody came to: what a ledger is given in tests."""

from pathlib import Path

from kernelyard.campaign.records import Judged, Key, Settings
from kernelyard.core.environment import Environment
from kernelyard.core.policy import Policy
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Phase, SandboxRecord, Status, Verdict
from kernelyard.suites.suite import Entry, Suite

ENVIRONMENT = Environment(
    device="cpu", device_name="a CPU", vendor="cpu", arch=None, driver=None, cuda=None, torch="2", triton=None,
    python="3", kernelyard="0", commit=None, date="2026-11-21T00:00:00+00:00",
)  # fmt: skip
SETTINGS = Settings(
    dtype="fp32", policy=Policy.TRAINING, rounds=3, budget=0.0, sandbox="native", hardware=ENVIRONMENT.device_name
)


def suite() -> Suite:
    source = Source(Path("1_Softmax.py"), "a problem")
    return Suite("made up", (Entry(1, 1, "1_Softmax.py", source, lambda: None),))  # type: ignore[arg-type, return-value]


def judged(key: Key, status: Status = Status.CRASHED, solution: str = "s", problem: str = "p") -> Judged:
    verdict = Verdict(
        status=status,
        phase=Phase.LOAD,
        problem="1_Softmax.py",
        problem_sha256=problem,
        solution=f"{key}_kernel.py",
        solution_sha256=solution,
        dtype="fp32",
        sandbox=SandboxRecord(kind="native"),
        environment=ENVIRONMENT,
    )
    return Judged(
        level=key.level, problem=key.problem, sample=key.sample, problem_name="1_Softmax.py", verdict=verdict,
        began="2026-11-21T00:00:00+00:00", seconds={"judge": 1.0},
    )  # fmt: skip
