"""KernelBench's `eval_results.json` and `pass_at_k_results.json`: written as views of a ledger, and read.

An entry has KernelBench's fields and means what they mean there: `compiled`, that the solution was loaded and called;
`correctness`, that it passed; `runtime`, the mean in ms. What KernelBench has no field for stands in `metadata`.
Samples that the machine or the problem is to blame for have no entry, as if nobody had tried them.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import kernelyard
from kernelyard.campaign.intervals import any_right
from kernelyard.campaign.records import NO_VERDICT, Foreign, Judged, Key
from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Phase, Status
from kernelyard.core.whole_file import write_whole

RESULTS = "eval_results.json"
PASS_AT_K = "pass_at_k_results.json"
JUDGE = "judge"
"""In `metadata`, of our entries alone: who came to it."""
COUNTS = (1, 5, 10, 100)
"""The k of pass@k, as far as there are so many samples of a problem."""
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "sample_id": int,
    "compiled": bool,
    "correctness": bool,
    "runtime": (int, float),
}
_LEVEL = re.compile(r"level_(\d+)")
# By which key KernelBench tells why.
_REASONS = {
    Status.COMPILE_ERROR: "compilation_error",
    Status.INCORRECT_VALUE: "correctness_issue",
    Status.INCORRECT_SHAPE: "correctness_issue",
    Status.INCORRECT_DTYPE: "correctness_issue",
    Status.NONDETERMINISTIC: "correctness_issue",
    Status.INPUT_MUTATED: "correctness_issue",
    Status.TIMEOUT: "error",
}


def results_folder(folder: Path, level: int, levels: Iterable[int]) -> Path:
    """Where the files of a level lie: KernelBench's know no level, so a run over several has a folder for each."""
    return folder if set(levels) <= {level} else folder / f"level_{level}"


def export(folder: Path, judged: Sequence[Judged], foreign: Sequence[Foreign]) -> list[Path]:
    """Write both files for every level, each whole or not at all; returns the paths.

    `foreign` holds all that `foreign_outcomes` found: what is not given is no longer in the files.
    """
    levels = sorted({one.level for one in judged} | {one.level for one in foreign})
    written = []
    for level in levels:
        place = results_folder(folder, level, levels)
        place.mkdir(exist_ok=True)
        entries = {one.key: dict(one.outcome) for one in foreign if one.level == level}
        entries |= {one.key: entry(one) for one in judged if one.level == level and is_told(one)}
        results: dict[str, list[dict[str, Any]]] = {}
        for key in sorted(entries):
            results.setdefault(str(key.problem), []).append(entries[key])
        write_whole(place / RESULTS, json.dumps(results, indent=4))
        write_whole(place / PASS_AT_K, json.dumps(pass_at_k(results), indent=2))
        written += [place / RESULTS, place / PASS_AT_K]
    if len(levels) > 1:
        # Of the time when there was one level: they would be taken for either's.
        for name in (RESULTS, PASS_AT_K):
            (folder / name).unlink(missing_ok=True)
    return written


def entry(one: Judged) -> dict[str, Any]:
    """A verdict as KernelBench would write it."""
    verdict = one.verdict
    hardware, device = verdict.environment.device_name, verdict.environment.device
    passed = verdict.status is Status.PASSED
    metadata: dict[str, Any] = {
        "hardware": hardware,
        "device": device,
        JUDGE: f"kernelyard {kernelyard.__version__}",
        "status": verdict.status.value,
        "problem_sha256": verdict.problem_sha256,
        "solution_sha256": verdict.solution_sha256,
    }
    if passed:
        metadata["correctness_trials"] = f"({verdict.trials} / {verdict.trials})"
    else:
        # Its trials ended with the first that failed; KernelBench counts them only where all were made.
        metadata[_REASONS.get(verdict.status, "runtime_error")] = verdict.message
    if verdict.decision is not None:
        metadata |= {
            "speedup": verdict.speedup,
            "speedup_interval": [verdict.speedup_low, verdict.speedup_high],
            "decision": verdict.decision.value,
            # `runtime` is as told where a gain is not shown; this says what of it counts.
            "credited": verdict.credited,
            "told": verdict.claimed,
        }
    metadata["flags"] = [flag.name for flag in verdict.flags]
    if any(flag.name == "large_gain" for flag in verdict.flags):
        metadata["excessive_speedup"] = True
    stats = statistics(verdict.time.samples_ms, hardware, device) if verdict.time is not None else {}
    return {
        "sample_id": one.sample,
        "compiled": passed or verdict.phase in (Phase.CHECK, Phase.TIME),
        "correctness": passed,
        "metadata": metadata,
        "runtime": stats.get("mean", -1.0),
        "runtime_stats": stats,
    }


def read(file: Path) -> dict[int, list[dict[str, Any]]]:
    """An `eval_results.json`, by problem. Raises UsageError for a file that is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("no object of problems")
        if named := [problem for problem in content if not problem.isdecimal()]:
            raise ValueError(f"{named[0]!r} in place of a problem's number")
        # A file of before July 2025 holds one entry for each problem and no list.
        lists = {int(problem): one if isinstance(one, list) else [one] for problem, one in content.items()}
        for problem, entries in lists.items():
            for each in entries:
                if not isinstance(each, dict):
                    raise ValueError(f"an entry of problem {problem} that is no object")
                each.setdefault("sample_id", 0)
                if wrong := [name for name, kind in _FIELDS.items() if not isinstance(each.get(name), kind)]:
                    raise ValueError(f"an entry of problem {problem} with no {' and no '.join(wrong)}")
                # JSON's integers have no end; a time has.
                float(each["runtime"])
                if not isinstance(each.get("metadata") or {}, dict):
                    raise ValueError(f"an entry of problem {problem} whose metadata is no object")
            samples = Counter(each["sample_id"] for each in entries)
            if twice := [sample for sample, count in samples.items() if count > 1]:
                raise ValueError(f"problem {problem} has sample {twice[0]} {samples[twice[0]]} times")
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file; expected KernelBench's {RESULTS}") from None
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{file} cannot be read ({line}); expected KernelBench's {RESULTS}") from None
    return lists


def foreign_outcomes(folder: Path, levels: Iterable[int]) -> list[Foreign]:
    """All that KernelBench came to in the files of `folder`; our own entries in them are not among it.

    `levels`: those that the file beside the solutions may be of. Raises UsageError for a file that is none, and for one
    that may be of several levels.
    """
    levels = sorted(set(levels))
    found: dict[Key, Foreign] = {}
    if theirs := _theirs(folder / RESULTS):
        if len(levels) != 1:
            raise UsageError(
                f"{folder / RESULTS} is of one level, and the run of {levels}; expected it in the folder of its level,"
                f" {folder / f'level_{levels[0] if levels else 1}'}"
            )
        found = {one.key: one for one in _of_level(levels[0], theirs)}
    for path in folder.glob("level_*"):
        if match := _LEVEL.fullmatch(path.name):
            found |= {one.key: one for one in _of_level(int(match[1]), _theirs(path / RESULTS))}
    return [found[key] for key in sorted(found)]


def _theirs(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """The entries of a file that are not ours, with their problems; none where there is no file."""
    entries = [(problem, each) for problem, found in read(file).items() for each in found] if file.exists() else []
    return [(problem, each) for problem, each in entries if not is_ours(each)]


def is_ours(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of eval_results.json was written by kernelyard."""
    return str((entry.get("metadata") or {}).get(JUDGE, "")).startswith("kernelyard")


def _of_level(level: int, entries: Iterable[tuple[int, dict[str, Any]]]) -> list[Foreign]:
    return [Foreign(level=level, problem=n, sample=each["sample_id"], outcome=each) for n, each in entries]


def pass_at_k(results: dict[str, list[dict[str, Any]]], counts: Sequence[int] = COUNTS) -> dict[str, Any]:
    """As KernelBench's script has it of the same results: a k beyond a problem's samples is its number of samples."""
    most = max((len(entries) for entries in results.values()), default=0)
    counts = [k for k in counts if k <= most] or [1]
    problems: dict[str, dict[str, Any]] = {}
    for problem, entries in results.items():
        correct = sum(bool(each["correctness"] and each["compiled"]) for each in entries)
        chances = {f"pass@{k}": any_right(len(entries), correct, k) for k in (min(k, len(entries)) for k in counts)}
        problems[problem] = {"total_samples": len(entries), "correct_samples": correct, **chances}
    known = {k: [each[f"pass@{k}"] for each in problems.values() if f"pass@{k}" in each] for k in counts}
    return {
        "averages": {f"avg_pass@{k}": sum(chances) / len(problems) for k, chances in known.items()} if problems else {},
        "metadata": {
            "total_problems": len(problems),
            "problems_with_samples": sum(each["total_samples"] > 0 for each in problems.values()),
            "total_evaluated_samples": sum(each["total_samples"] for each in problems.values()),
            "total_correct_samples": sum(each["correct_samples"] for each in problems.values()),
            **{f"pass@{k}_count": len(chances) for k, chances in known.items()},
        },
        "problems": problems,
    }


def is_told(one: Judged) -> bool:
    """Whether it has an entry: it says something of the solution."""
    return one.verdict.status not in NO_VERDICT


def statistics(samples_ms: Sequence[float], hardware: str, device: str) -> dict[str, Any]:
    """A time as KernelBench writes it: milliseconds in three significant digits, the mean and no median."""
    mean = math.fsum(samples_ms) / len(samples_ms)
    spread = math.sqrt(math.fsum((sample - mean) ** 2 for sample in samples_ms) / len(samples_ms))
    figures = {"mean": mean, "std": spread, "min": min(samples_ms), "max": max(samples_ms)}
    rounded = {name: float(f"{value:.3g}") for name, value in figures.items()}
    return {**rounded, "num_trials": len(samples_ms), "hardware": hardware, "device": device}
