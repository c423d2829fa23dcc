"""KernelBench's own definition, held against their script on the same files.

Where KERNELYARD_KERNELBENCH names a checkout, its `benchmark_eval_analysis.py` runs beside ours; its command-line and
table packages get stand-ins where they are missing, for they compute nothing. Elsewhere ours is held against the
numbers that their script at 423217d gave for the same files.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_up_runs import judged

from kernelyard.campaign.kernelbench_files import RESULTS, export, read
from kernelyard.campaign.kernelbench_score import KernelBenchScore, kernelbench_score

LEVEL = 3
THEIRS = {
    "level": 3,
    "total_count": 50,
    "total_eval": 40,
    "compiled_count": 38,
    "correct_count": 36,
    "compilation_rate": 0.76,
    "correctness_rate": 0.72,
    "geo_mean_speedup": 1.3102123440172755,
    "fast_p": {
        "0.0": 0.7291666666666666,
        "0.5": 0.6458333333333334,
        "0.8": 0.5625,
        "1.0": 0.5,
        "1.5": 0.3125,
        "2.0": 0.16666666666666666,
    },
}
"""What their script at 423217d wrote for `results(False)` and `means`, with the names of its level 3."""
MADE_UP = {number: f"{number}_Made_Up.py" for number in range(1, 51)}
BESIDE = r"""
import importlib.util, json, sys, types

def stand_in(name, **members):
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(members)

stand_in("pydra", Config=object, REQUIRED=None, main=lambda base: lambda function: function)
stand_in("tabulate", tabulate=lambda *_, **__: "")
checkout, folder = sys.argv[1:]
sys.path.insert(0, f"{checkout}/scripts")
# Without its __init__, which imports clients of language models.
sys.modules["kernelbench"] = types.ModuleType("kernelbench")
sys.modules["kernelbench"].__path__ = [f"{checkout}/src/kernelbench"]
from benchmark_eval_analysis import analyze_greedy_eval

found = analyze_greedy_eval("run", "-", "-", 3, baseline_file=f"{folder}/baseline.json", eval_results_dir=folder)
print("RESULT" + json.dumps(found))
"""


def entry(sample: int = 0, right: bool = True, runtime: float = 1.0, compiled: bool = True) -> dict[str, object]:
    return {
        "sample_id": sample, "compiled": compiled, "correctness": right, "metadata": {}, "runtime": runtime,
        "runtime_stats": {},
    }  # fmt: skip


def results(untimed: bool) -> dict[int, list[dict[str, object]]]:
    """Right, wrong, not compiled; one exactly as fast as the baseline; several samples, and a second sample alone."""
    draw = np.random.default_rng(0)
    runtimes = [float(f"{value:.3g}") for value in draw.lognormal(0, 0.7, 40)]
    found = {number: [entry(runtime=runtime)] for number, runtime in enumerate(runtimes, 1)}
    found[3] = [entry(right=False, runtime=-1.0)]
    found[4] = [entry(right=False, runtime=-1.0, compiled=False)]
    found[5] = [entry(runtime=1.25)]
    found[6] = [entry(1, runtime=0.001), entry(0, right=False, runtime=-1.0)]
    found[7] = [entry(1, runtime=0.001)]
    if untimed:
        found[8] = [entry(runtime=-1.0)]
    return found


def means(names: dict[int, str]) -> dict[str, float]:
    """Milliseconds of every problem but two."""
    draw = np.random.default_rng(1)
    found = {
        name: float(f"{value:.3g}") for name, value in zip(names.values(), draw.lognormal(0.2, 0.5, 50), strict=True)
    }
    found[names[5]] = 1.25
    return {name: mean for name, mean in found.items() if name not in (names[2], names[49])}


def score(names: dict[int, str], untimed: bool = False) -> KernelBenchScore:
    return kernelbench_score(results(untimed), means(names), names, LEVEL, "baseline.json")


def test_the_score_equals_the_numbers_of_their_script() -> None:
    found = score(MADE_UP)
    assert found.model_dump(include=set(THEIRS)) == THEIRS
    assert found.aligned == 48
    assert found.untimed == 0


def test_a_right_sample_without_a_time_spoils_the_mean_and_is_not_in_fast_0() -> None:
    found = score(MADE_UP, untimed=True)
    assert found.geo_mean_speedup is None
    assert found.untimed == 1
    assert found.correct_count == THEIRS["correct_count"]
    assert found.fast_p["0.0"] == pytest.approx(THEIRS["fast_p"]["0.0"] - 1 / 48)


@pytest.mark.filterwarnings("error")
def test_a_runtime_of_0_is_infinitely_fast_and_no_warning() -> None:
    entry = {"sample_id": 0, "compiled": True, "correctness": True, "runtime": 0.0}
    score = kernelbench_score({1: [entry]}, {"1_x.py": 2.0}, {1: "1_x.py"}, 1, "baseline.json")
    assert score.fast_p["2.0"] == 1.0 and score.geo_mean_speedup is None


def test_nothing_right_is_no_speedup() -> None:
    found = kernelbench_score({1: [entry(right=False)]}, {"1_a.py": 1.0}, {1: "1_a.py"}, 1, "x")
    assert found.geo_mean_speedup == 0.0
    assert set(found.fast_p.values()) == {0.0}


@pytest.mark.skipif("KERNELYARD_KERNELBENCH" not in os.environ, reason="KERNELYARD_KERNELBENCH names no checkout")
@pytest.mark.parametrize("files", ["made up", "with an untimed sample", "as `kernelyard run` writes them"])
def test_the_score_equals_their_script_on_the_same_files(tmp_path: Path, files: str) -> None:
    checkout = Path(os.environ["KERNELYARD_KERNELBENCH"])
    present = [path.name for path in (checkout / "KernelBench" / f"level{LEVEL}").glob("*.py")]
    names = {int(name.partition("_")[0]): name for name in present}
    names = dict(sorted(names.items()))
    untimed = files == "with an untimed sample"
    run = tmp_path / "run"
    run.mkdir()
    if files.startswith("as"):
        verdicts = [judged(number, 0.5 + number / 20 if number % 3 else None, level=LEVEL) for number in range(1, 40)]
        export(run, verdicts, [])
    else:
        (run / RESULTS).write_text(json.dumps(results(untimed)))
    stats = {name: {"mean": mean} for name, mean in means(names).items()}
    (tmp_path / "baseline.json").write_text(json.dumps({f"level{LEVEL}": stats}))
    ran = subprocess.run(
        [sys.executable, "-c", BESIDE, str(checkout), str(tmp_path)], capture_output=True, text=True, check=True
    )
    theirs = json.loads(ran.stdout.rpartition("RESULT")[2])
    if untimed:
        assert np.isnan(theirs.pop("geo_mean_speedup"))
        theirs["geo_mean_speedup"] = None
    ours = kernelbench_score(read(run / RESULTS), means(names), names, LEVEL, "baseline.json").model_dump()
    assert {name: ours[name] for name in theirs if name in ours} == {
        name: value for name, value in theirs.items() if name in ours
    }
    assert len(ours.keys() & theirs.keys()) == 9
