"""The pass@k that a run writes for KernelBench's scripts: which k, and those of its own script among them."""

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kernelyard.campaign.kernelbench_files import COUNTS, PASS_AT_K, export, pass_at_k
from kernelyard.campaign.records import Foreign


def results(*samples: int) -> dict[str, list[dict[str, Any]]]:
    """Of as many problems, with so many samples each; the first of each is right."""
    right = {"compiled": True, "correctness": True, "metadata": {}, "runtime": 1.0}
    made = [[{"sample_id": i, **right, "correctness": i == 0} for i in range(count)] for count in samples]
    return {str(number): entries for number, entries in enumerate(made, 1)}


@pytest.mark.parametrize(
    ("samples", "counts"),
    [
        ((1,), (1,)),
        ((4, 2), (1,)),
        ((5, 5), (1, 5)),
        ((12, 10), (1, 5, 10)),
        ((3, 10), (1, 5, 10)),
        ((100,), COUNTS),
    ],
)
def test_every_k_is_written_of_which_a_problem_has_as_many_samples(
    tmp_path: Path, samples: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    entries = results(*samples)
    foreign = [
        Foreign(level=1, problem=int(problem), sample=each["sample_id"], outcome=each)
        for problem, found in entries.items()
        for each in found
    ]
    export(tmp_path, [], foreign)
    told = json.loads((tmp_path / PASS_AT_K).read_text())
    assert list(told["averages"]) == [f"avg_pass@{k}" for k in counts]
    assert [name for name in told["metadata"] if name.startswith("pass@")] == [f"pass@{k}_count" for k in counts]


def test_of_a_problem_with_fewer_samples_it_is_their_number() -> None:
    """KernelBench's rule: a k beyond them is as many as there are, under that name."""
    told = pass_at_k(results(3, 10))
    assert told["problems"]["1"] == {
        "total_samples": 3, "correct_samples": 1, "pass@1": pytest.approx(1 / 3), "pass@3": 1.0
    }  # fmt: skip
    assert told["problems"]["2"].keys() >= {"pass@1", "pass@5", "pass@10"}
    assert told["metadata"]["pass@5_count"] == 1
    # Over all problems, as there, whether or not they have it.
    assert told["averages"]["avg_pass@5"] == pytest.approx(0.5 / 2)


@pytest.mark.skipif("KERNELYARD_KERNELBENCH" not in os.environ, reason="KERNELYARD_KERNELBENCH names no checkout")
def test_the_k_that_kernelbenchs_script_writes_by_itself_are_among_them() -> None:
    script = Path(os.environ["KERNELYARD_KERNELBENCH"], "scripts/eval_from_generations.py").read_text()
    (theirs,) = (
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self.pass_at_k_values"
    )
    for count in (2, 5, 10):
        told = pass_at_k(results(count))
        assert told["averages"].keys() >= {f"avg_pass@{k}" for k in theirs}
        assert told["problems"]["1"].keys() >= {f"pass@{min(k, count)}" for k in theirs}
