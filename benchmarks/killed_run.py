"""A run of many candidates, undisturbed and killed with -9 three times: whether both ledgers say the same.

    python benchmarks/killed_run.py FOLDER [--candidates 200] [--judges 2] [--kills 3]

Two tiny problems on the CPU, with the solutions of `tests/campaign/solutions.py` over and over, each a text of its own;
the one that never answers comes once. Compared is what hangs neither on time nor on secret seeds. Exit code 1 where
something differs, or a candidate was judged twice.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/campaign"))

from solutions import PROBLEMS, SOLUTIONS  # noqa: E402

from kernelyard.campaign.ledger import FILE_NAME, Ledger  # noqa: E402
from kernelyard.core.verdict import Status  # noqa: E402

# Honest times may be doubted on a CPU that others load; by then everything else was checked.
CLOCKS = ("clock_mismatch", "outside_clock", "uneven_calls", "under_the_floor")


def write(folder: Path, count: int) -> None:
    problems, run = folder / "problems", folder / "run"
    problems.mkdir(parents=True)
    run.mkdir()
    for name, text in PROBLEMS.items():
        (problems / name).write_text(text)
    usual = [(key, text) for key, (text, status) in SOLUTIONS.items() if status != "timeout"]
    slow = [(key, text) for key, (text, status) in SOLUTIONS.items() if status == "timeout"]
    chosen = slow + [usual[i % len(usual)] for i in range(count - len(slow))]
    for sample, ((problem, _), text) in enumerate(chosen):
        (run / f"level_0_problem_{problem}_sample_{sample}_kernel.py").write_text(f"# {sample}\n{text}")


def start(folder: Path, judges: int, log: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "kernelyard", "run", str(folder / "run"), "--suite", str(folder / "problems")]
    command += ["--rounds", "3", "--budget", "0", "--timeout", "load=60,check=15,time=60", "--gpus", str(judges)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path]),
        "OMP_NUM_THREADS": "1",
    }
    environment |= {"KERNELYARD_CACHE": str(folder / "cache"), "KERNELYARD_STATE": str(folder / "state")}
    with log.open("ab") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=file)


def told(folder: Path) -> dict[str, tuple[object, ...]]:
    found = {}
    with Ledger(folder / "run") as ledger:
        for one in ledger.judged():
            verdict = one.verdict
            doubted = verdict.status is Status.REJECTED and verdict.message.startswith(CLOCKS)
            status = "passed" if doubted else verdict.status.value
            found[str(one.key)] = (status, verdict.trials, verdict.solution_sha256, verdict.problem_sha256)
    return found


def verdicts(folder: Path) -> int:
    if not (folder / "run" / FILE_NAME).exists():
        return 0
    with Ledger(folder / "run") as ledger:
        return len(ledger.judged())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--judges", type=int, default=2)
    parser.add_argument("--kills", type=int, default=3)
    given = parser.parse_args()
    calm, killed = given.folder / "undisturbed", given.folder / "killed"
    for folder in (calm, killed):
        write(folder, given.candidates)
    begin = time.monotonic()
    code = start(calm, given.judges, calm / "log").wait()
    print(f"undisturbed: exit code {code} after {time.monotonic() - begin:.0f} s", flush=True)
    begin = time.monotonic()
    for count in sorted(random.sample(range(1, given.candidates), given.kills)):
        process = start(killed, given.judges, killed / "log")
        while verdicts(killed) < count and process.poll() is None:
            time.sleep(0.2)
        process.kill()
        process.wait()
        print(f"killed with {verdicts(killed)} verdicts", flush=True)
    code = start(killed, given.judges, killed / "log").wait()
    print(f"resumed: exit code {code} after {time.monotonic() - begin:.0f} s", flush=True)
    expected, found = told(calm), told(killed)
    lines = [line.split()[0] for line in (killed / "log").read_text().splitlines() if line.startswith("level_")]
    twice = [name for name, count in Counter(lines).items() if count > 1]
    differ = [name for name in expected if expected[name] != found.get(name)]
    print(f"{dict(Counter(status for status, *_ in expected.values()))}")
    print(f"{len(expected)} and {len(found)} verdicts, {len(differ)} differ, {len(twice)} judged twice")
    for name in differ:
        print(f"{name}: {expected[name]} and {found.get(name)}")
    return int(bool(differ or twice or len(expected) != given.candidates))


if __name__ == "__main__":
    sys.exit(main())
