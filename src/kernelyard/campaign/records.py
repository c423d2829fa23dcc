"""What a campaign is made of: solutions on their way to a verdict, and verdicts with how they were come by."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernelyard.core.policy import Policy
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Record, Status, Verdict

NO_VERDICT = (Status.INFRA_ERROR, Status.INVALID_PROBLEM)
"""Endings that say nothing of a solution: they are counted apart, in no share, and told to nobody."""


@dataclass(frozen=True, order=True)
class Key:
    """Which sample of which problem: what KernelBench's `level_L_problem_P_sample_S_kernel.py` says."""

    level: int
    problem: int
    sample: int

    def __str__(self) -> str:
        return f"level_{self.level}_problem_{self.problem}_sample_{self.sample}"


def places_of(samples: Iterable[Key]) -> set[tuple[int, int]]:
    """Their problems, by level and number."""
    return {(key.level, key.problem) for key in samples}


@dataclass(frozen=True)
class Candidate:
    """A solution's text, read once and run only in a sandbox."""

    key: Key
    source: Source


class Judged(Record):
    """A verdict in a run."""

    level: int
    problem: int
    sample: int
    problem_name: str
    """The file's name, `23_Softmax.py`: KernelBench's baselines are keyed by it."""
    verdict: Verdict
    began: str
    """UTC, ISO 8601."""
    seconds: dict[str, float]
    """Wall time of each stage that it went through: `compile`, `judge`."""
    attempts: int = 1
    """More than one where the machine was at fault."""

    @property
    def key(self) -> Key:
        return Key(self.level, self.problem, self.sample)


class Settings(Record):
    """What all verdicts of a run have in common, so that they can be held against each other.

    Deadlines are not among it: a timeout names its own.
    """

    dtype: str
    policy: Policy
    rounds: int
    budget: float
    """Seconds of timing while the interval is wide."""
    sandbox: str
    hardware: str
    """What the device calls itself."""
    train_mode: bool = False
    """References and solutions ran in training mode."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class Foreign(Record):
    """A sample's outcome as KernelBench wrote it: known, and no verdict of ours."""

    level: int
    problem: int
    sample: int
    outcome: dict[str, Any]
    """Its entry in `eval_results.json`, as it stands there."""

    @property
    def key(self) -> Key:
        return Key(self.level, self.problem, self.sample)
