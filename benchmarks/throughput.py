"""Candidates an hour: KernelBench's own `eval_from_generations.py` and `kernelyard run`, on the same sixty.

    python benchmarks/throughput.py CHECKOUT OUT [--level 1] [--problems 19-28] [--ways ours-cold,...]
        [--parts 1] [--gpus 1] [--beside OUT...]

CHECKOUT is KernelBench's (423217d was used), OUT a folder for logs, results and `throughput.json`, to which every way
is added as it ends: they may be taken one at a time, with the same OUT. The ways:

- `ours-cold`, `ours-warm`: `kernelyard run`, with empty caches and with what the run before built;
- `best-cold`, `best-warm`: theirs with build_cache and all CPU workers; CUDA and Triton solutions are two runs there,
  whose times are added. What a cold run takes without the builds before it, by its own progress bar, stands beside it;
- `defaults`: theirs as it comes, where each candidate is built when its turn comes. `--problems 19-19` tells as much.

Level 1's problems 19 to 28 are KernelBench's largest, 13 GB each; `--level 2 --problems 70-79` are of its usual size,
0.04 to 0.6 GB: 8 minutes of ours, 20 and 16 of theirs with its best flags, and 41 as it comes.

Ours has a deadline of 30 s for the checks and 60 for the timing, several times what either takes. Theirs, for all of a
candidate, stays at its 180: of 6.4 GB it draws seven sets on one core, and with 60 none would be judged. That is an
hour for all sixty: with `--parts` theirs runs in so many processes beside each other, each with its share of problems
and cores, and of `--gpus` in turn. Theirs keeps one core busy and the GPU hardly at all: two parts on level 1 fit an
H200, four on level 2. All that they took is added, as if one after another, but the builds of all count as the longest
part's: with all cores those of all sixty would take no less. `--beside` adds what OUTs of other problems hold.

Beside torch and Triton, KernelBench needs the wheels pydra-config, dill, PyYAML, tqdm and requests (with certifi,
charset-normalizer, idna, urllib3). Its clients of language models and of Modal (modal, litellm, openai, dotenv) have no
part in a local evaluation: empty modules stand in for those that are not installed, which can only make it faster.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import throughput_candidates as candidates

from kernelyard.campaign.kernelbench_files import RESULTS, read
from kernelyard.core.cores import usable_cores

ROOT = Path(__file__).parents[1]
SCRIPT = "scripts/eval_from_generations.py"
WAYS = ("ours-cold", "ours-warm", "best-cold", "best-warm", "defaults")
SAMPLES = {"cuda": 4, "triton": 2}
RECORD = "throughput.json"
# Where one candidate times out, theirs deletes what was built of all: those after it are built when their turn comes.
CACHE_LOST = "[INFO] Removed cached folder"
UNUSED = ("modal", "litellm", "openai", "dotenv")
# What their three endings are called by ours; of one that has no answer they say that it did not compile.
ALIKE = {
    "correct": ("passed",),
    "incorrect": ("incorrect_", "runtime_error", "nondeterministic", "input_mutated", "rejected"),
    "not compiled": ("compile_error", "load_error"),
}
# Whatever is asked of it, and whatever it decorates, is it again.
STAND_IN = """
import sys
class _Nothing:
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __iter__(self): return iter(())
_nothing = _Nothing()
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return _nothing
"""


def timed(command: list[str], log: Path, environment: dict[str, str], cwd: Path) -> float:
    """Seconds; what it said is in `log`. Its exit code is there too: a run that fails has no better number."""
    begin = time.monotonic()
    with log.open("w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment, cwd=cwd)
        file.write(f"\nexit code {done.returncode}\n")
    return time.monotonic() - begin


def ours(out: Path, checkout: Path, level: int, problems: range, *, warm: bool) -> dict[str, Any]:
    run = out / "ours"
    for name in (
        RESULTS,
        "pass_at_k_results.json",
        "kernelyard.sqlite",
        "kernelyard.sqlite-wal",
        "kernelyard.sqlite-shm",
    ):
        (run / name).unlink(missing_ok=True)
    cache = out / "our_cache"
    if not warm:
        shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "kernelyard", "run", str(run), "--source", str(checkout), "--level", str(level)]
    command += ["--ids", f"{problems[0]}-{problems[-1]}", "--timeout", "compile=300,load=300,check=30,time=60"]
    environment = {**os.environ, "KERNELYARD_CACHE": str(cache)}
    way = "ours-warm" if warm else "ours-cold"
    seconds = timed(command, out / f"{way}.log", environment, ROOT)
    shutil.copy(run / "kernelyard.sqlite", out / f"{way}.sqlite")
    results = read(run / RESULTS) if (run / RESULTS).exists() else {}
    return {"seconds": seconds, "verdicts": _ours_told(results)}


def theirs(out: Path, checkout: Path, level: int, problems: range, way: str) -> dict[str, Any]:
    """The two kinds one after the other."""
    stand_ins = out / "stand_ins"
    stand_ins.mkdir(exist_ok=True)
    cache = out / "their_cache"
    for name in UNUSED:
        if importlib.util.find_spec(name) is None:
            (stand_ins / f"{name}.py").write_text(STAND_IN)
    paths = [str(checkout / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep), str(stand_ins)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TRITON_CACHE_DIR": str(cache / "triton")}
    if way != "best-warm":
        shutil.rmtree(cache, ignore_errors=True)
    seconds, builds, lost, told = 0.0, 0.0, 0, {}
    for kind, samples in SAMPLES.items():
        (out / kind / RESULTS).unlink(missing_ok=True)
        options = {
            "run_name": kind,
            "runs_dir": out,
            "kernel_eval_build_dir": cache / kind,
            "dataset_src": "local",
            "level": level,
            "subset": f"[{problems[0]},{problems[-1]}]",
            "num_samples_per_problem": samples,
            "backend": kind,
            "gpu_arch": '["Hopper"]',
        }
        if way != "defaults":
            options |= {"build_cache": kind == "cuda", "num_cpu_workers": usable_cores()}
        command = [sys.executable, SCRIPT, *(f"{name}={value}" for name, value in options.items())]
        log = out / f"{way}-{kind}.log"
        seconds += timed(command, log, environment, checkout)
        said = log.read_text(errors="replace")
        builds += _build_seconds(said)
        lost += said.count(CACHE_LOST)
        file = out / kind / RESULTS
        if file.exists():
            shutil.copy(file, out / f"{way}-{kind}.json")
            told |= _theirs_told(read(file), kind)
    return {"seconds": seconds, "builds": builds, "lost": lost, "verdicts": told}


def in_parts(out: Path, checkout: Path, level: int, problems: range, way: str, parts: int, gpus: int) -> dict[str, Any]:
    """`theirs`, of as many shares of the problems beside each other; each writes to a folder of its own in OUT."""
    cores = sorted(os.sched_getaffinity(0))
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")[:gpus]
    running = {}
    for i in range(parts):
        share, held = (them[i * len(them) // parts : (i + 1) * len(them) // parts] for them in (problems, cores))
        ids = f"{share[0]}-{share[-1]}"
        command = [sys.executable, __file__, str(checkout), str(out / ids), "--level", str(level)]
        running[out / ids] = subprocess.Popen(
            [*command, "--problems", ids, "--ways", way],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": devices[i * len(devices) // parts]},
            stdout=subprocess.DEVNULL,
            preexec_fn=partial(os.sched_setaffinity, 0, held),
        )
    if failed := [str(folder) for folder, one in running.items() if one.wait()]:
        raise SystemExit(f"{way} failed in {', '.join(failed)}; their logs are there")
    return together([{way: json.loads((folder / RECORD).read_text())[way]} for folder in running])[way]


def _build_seconds(log: str) -> float:
    """What the progress bar of their build stage says at its end; 0 where there was none."""
    ends = re.findall(r"Compile & Cache Progress: 100%[^\[]*\[(?:(\d+):)?(\d+):(\d+)<", log)
    return float(sum(int(part or 0) * 60**place for place, part in enumerate(reversed(ends[-1])))) if ends else 0.0


def _ours_told(results: dict[int, list[dict[str, Any]]]) -> dict[str, str]:
    told = {}
    for problem, entries in results.items():
        for each in entries:
            decision = each["metadata"].get("decision")
            said = each["metadata"]["status"] + (f", {each['metadata']['speedup']:.2f}x {decision}" if decision else "")
            told[f"{problem}/{each['sample_id']}"] = said
    return told


def _theirs_told(results: dict[int, list[dict[str, Any]]], kind: str) -> dict[str, str]:
    told = {}
    for problem, entries in results.items():
        for each in entries:
            sample = each["sample_id"] + (SAMPLES["cuda"] if kind == "triton" else 0)
            said = "correct" if each["correctness"] else "incorrect" if each["compiled"] else "not compiled"
            told[f"{problem}/{sample}"] = f"{said}, {each['runtime']:.3g} ms" if each["correctness"] else said
    return told


def together(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Parts of the same ways: the longest build stage, and all that came after any; verdicts side by side."""
    found: dict[str, Any] = {}
    for record in records:
        for way, one in record.items():
            sums = found.setdefault(way, {"seconds": 0.0, "builds": 0.0, "lost": 0, "verdicts": {}})
            builds, before = one.get("builds", 0.0), sums["builds"]
            sums["builds"] = max(before, builds)
            sums["seconds"] += one["seconds"] - builds + sums["builds"] - before
            sums["lost"] += one.get("lost", 0)
            sums["verdicts"] |= one["verdicts"]
    return found


def report(found: dict[str, Any]) -> str:
    lines = [f"{'way':<10}  {'seconds':>8}  {'judged':>6}  {'an hour':>7}  {'without builds':>14}  {'cache lost':>10}"]
    for way, one in found.items():
        judged, seconds, builds = len(one["verdicts"]), one["seconds"], one["builds"]
        rest = f"{3600 * judged / (seconds - builds):14.0f}  {one['lost']:10}" if builds else ""
        lines.append(f"{way:<10}  {seconds:8.0f}  {judged:6}  {3600 * judged / seconds:7.0f}  {rest}".rstrip())
    first = next((found[way] for way in ("ours-cold", "ours-warm") if way in found), None)
    second = next((found[way] for way in ("best-cold", "best-warm", "defaults") if way in found), None)
    if first and second:
        both = sorted({*first["verdicts"]} & {*second["verdicts"]}, key=lambda name: [int(n) for n in name.split("/")])
        pairs = {name: (first["verdicts"][name], second["verdicts"][name]) for name in both}
        apart = {name for name, (mine, other) in pairs.items() if _is_right(mine) != other.startswith("correct")}
        unlike = {name for name, (mine, other) in pairs.items() if not mine.startswith(ALIKE[other.split(",")[0]])}
        lines += ["", f"of {len(both)} that both judged, verdicts that differ (ours / theirs):"]
        lines += [_pair(name, *pairs[name]) for name in both if name in apart] or ["  none"]
        lines += ["", "and refused by both, for another kind of reason:"]
        lines += [_pair(name, *pairs[name]) for name in both if name in unlike - apart] or ["  none"]
    return "\n".join(lines)


def _is_right(mine: str) -> bool:
    return mine.startswith(ALIKE["correct"])


def _pair(name: str, mine: str, other: str) -> str:
    fault = candidates.fault_of(*map(int, name.split("/")))
    return f"  {name:<6} {mine} / {other}{f'   ({fault})' if fault else ''}"


def _references(checkout: Path, level: int, problems: range) -> dict[int, str]:
    files = (checkout / f"KernelBench/level{level}").glob("*.py")
    numbered = {int(file.name.split("_")[0]): file for file in files}
    return {number: numbered[number].read_text() for number in problems}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument(
        "--problems", default=f"{candidates.FIRST}-{candidates.LAST}", help="a range; of level 1, of it"
    )
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--parts", type=int, default=1, help="processes that theirs is shared out to")
    parser.add_argument("--gpus", type=int, default=1, help="devices that they have")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="OUTs of other problems, to be added")
    given = parser.parse_args()
    checkout, out = given.checkout.resolve(), given.out.resolve()
    first, _, last = given.problems.partition("-")
    problems = range(int(first), int(last or first) + 1)
    whole = given.level == 1
    if not problems or (whole and not candidates.FIRST <= problems[0] <= problems[-1] <= candidates.LAST):
        parser.error(f"expected a range of problems, of level 1 within {candidates.FIRST}-{candidates.LAST}")
    if not 1 <= given.gpus <= given.parts <= len(problems) or given.parts > usable_cores():
        parser.error(f"expected --parts of 1 to {min(len(problems), usable_cores())}, and no more --gpus than parts")
    if not (checkout / SCRIPT).exists():
        parser.error(f"expected a checkout of KernelBench, with {SCRIPT}")
    if not out.exists():
        references = {} if whole else _references(checkout, given.level, problems)
        candidates.write(out / "cuda", out / "triton", out / "ours", given.level, problems, references)
    record = out / RECORD
    found: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}
    beside = [json.loads((one / RECORD).read_text()) for one in given.beside]
    for way in filter(None, given.ways.split(",")):
        if way not in WAYS:
            parser.error(f"unknown way {way!r}; expected one of {', '.join(WAYS)}")
        if way.startswith("ours"):
            found[way] = ours(out, checkout, given.level, problems, warm=way.endswith("warm"))
        elif given.parts > 1:
            found[way] = in_parts(out, checkout, given.level, problems, way, given.parts, given.gpus)
        else:
            found[way] = theirs(out, checkout, given.level, problems, way)
        record.write_text(json.dumps(found, indent=1))
    print(report(together([found, *beside])), flush=True)


if __name__ == "__main__":
    main()
