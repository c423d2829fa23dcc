"""The comparison's own bookkeeping, beside a KernelBench that only pretends to judge."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelyard.core.cores import usable_cores

SCRIPT = Path(__file__).parents[2] / "benchmarks/throughput.py"
PRETENDS = """
import json, os, sys
from pathlib import Path
given = dict(argument.split("=", 1) for argument in sys.argv[1:])
first, last = json.loads(given["subset"])
folder = Path(given["runs_dir"], given["run_name"])
assert not (Path(os.environ["TRITON_CACHE_DIR"]).exists() and given["run_name"] == "cuda"), "cold"
Path(os.environ["TRITON_CACHE_DIR"]).mkdir(parents=True, exist_ok=True)
print(f"Compile & Cache Progress: 100%|##| 4/4 [00:{first}<00:00]")
one = {"compiled": True, "correctness": True, "metadata": {}, "runtime": 1.0, "runtime_stats": {}}
found = {str(p): [{"sample_id": s, **one} for s in range(int(given["num_samples_per_problem"]))]
         for p in range(first, last + 1)}
(folder / "eval_results.json").write_text(json.dumps(found))
(folder / "cores").write_text(str(len(os.sched_getaffinity(0))))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (made := tmp_path / "checkout" / "scripts").mkdir(parents=True)
    (made / "eval_from_generations.py").write_text(PRETENDS)
    (level := tmp_path / "checkout/KernelBench/level2").mkdir(parents=True)
    for number in range(40, 44):
        (level / f"{number}_doubled.py").write_text("class Model:\n    pass\n")
    return made.parent


def compared(checkout: Path, out: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, SCRIPT, checkout, out, "--level", "2", "--problems", "40-43", *options]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
def test_parts_share_the_problems_and_the_cores_and_are_added_up(checkout: Path, tmp_path: Path) -> None:
    done = compared(checkout, out := tmp_path / "out", "--ways", "best-cold,defaults", "--parts", "2")
    assert done.returncode == 0, done.stderr
    found = json.loads((out / "throughput.json").read_text())
    assert len(found["best-cold"]["verdicts"]) == len(found["defaults"]["verdicts"]) == 4 * 6
    assert found["best-cold"]["builds"] == 2 * 42, "those of the longer part, of both kinds"
    cores = [int((out / part / "cuda/cores").read_text()) for part in ("40-41", "42-43")]
    assert sum(cores) == usable_cores() and min(cores) >= 1


@pytest.mark.parametrize("options", [("--parts", "5"), ("--parts", "0"), ("--gpus", "2")])
def test_wrong_parts_are_named(options: tuple[str, ...], checkout: Path, tmp_path: Path) -> None:
    done = compared(checkout, tmp_path / "out", *options)
    assert done.returncode == 2 and "expected --parts of 1 to" in done.stderr and not (tmp_path / "out").exists()
