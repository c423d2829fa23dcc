"""The score of a run by KernelBench's own definition, flaws included: its numbers, to be set beside other people's.

As its `benchmark_eval_analysis.py` has it: sample 0 alone; a problem counts where the level and the baseline both have
it, and counts as wrong where the run has not; the stored baseline's mean over the solution's mean, strictly above p;
the geometric mean by `np.prod`, which overflows; a right sample that was not timed has runtime -1, so that its ratio is
negative, the mean NaN, and it is not even in fast_0.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import field_validator

from kernelyard.core.verdict import Record

P_VALUES = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)


class KernelBenchScore(Record):
    """What `benchmark_eval_analysis.py` writes with `output_file`, without the names and pass@k."""

    level: int
    total_count: int
    total_eval: int
    compiled_count: int
    correct_count: int
    compilation_rate: float
    correctness_rate: float
    geo_mean_speedup: float | None
    """Null where theirs is NaN or infinite."""
    fast_p: dict[str, float]
    aligned: int
    """Problems that count: its n."""
    untimed: int
    """Right samples with runtime -1."""
    uncredited: int = 0
    """Of those in fast_1.0: gains by the workers' word, of which our verdicts credit nothing."""
    baseline: str
    """The file whose means were divided."""

    @field_validator("geo_mean_speedup")
    @classmethod
    def _null_not_nan(cls, value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else value


def kernelbench_score(
    results: Mapping[int, Sequence[Mapping[str, Any]]],
    baseline: Mapping[str, float],
    names: Mapping[int, str],
    level: int,
    source: str,
    unshown: Collection[int] = (),
) -> KernelBenchScore:
    """The score of one level.

    `results` are entries by problem, as in eval_results.json; `baseline` mean milliseconds by file, `names` files by
    problem; `unshown` the problems of whose sample 0 we credit no gain.
    """
    first = {number: entry for number, entries in results.items() for entry in entries if entry["sample_id"] == 0}
    wrong = {"compiled": False, "correctness": False, "runtime": -1.0}
    first |= {number: wrong for number in names if number not in first}

    aligned = [number for number in sorted(names) if names[number] in baseline]
    counted = [(first[number], baseline[names[number]]) for number in aligned]
    right = [(mean, entry["runtime"]) for entry, mean in counted if entry["correctness"]]
    # A runtime of 0 is what a solution that replaces the events of the clock has.
    with np.errstate(all="ignore"):
        speedups = np.array([mean for mean, _ in right]) / np.array([runtime for _, runtime in right])
        geometric = float(np.prod(speedups) ** (1 / len(right))) if right else 0.0
    compiled = sum(entry["compiled"] is True for entry in first.values())
    correct = sum(entry["correctness"] is True for entry in first.values())
    return KernelBenchScore(
        level=level,
        total_count=len(names),
        total_eval=len(results),
        compiled_count=compiled,
        correct_count=correct,
        compilation_rate=compiled / len(names) if names else 0.0,
        correctness_rate=correct / len(names) if names else 0.0,
        geo_mean_speedup=geometric,
        fast_p={str(p): float(np.sum(speedups > p) / len(counted)) if counted else 0.0 for p in P_VALUES},
        aligned=len(counted),
        untimed=sum(runtime < 0 for _, runtime in right),
        uncredited=sum(
            first[number]["correctness"] and 0 < first[number]["runtime"] < baseline[names[number]]
            for number in set(aligned) & set(unshown)
        ),
        baseline=source,
    )
