"""What torch itself takes for each problem: measured here, kept with what it holds for, shown in KernelBench's format.

A folder holds one device, dtype and mode, as KernelBench's `results/timing/<hardware>/` does. `kernelyard.jsonl` is the
ledger, a line a problem with every sample; KernelBench's files beside it are views of it. An entry is found by the
problem's text, the dtype, the mode and the device, so a stale one is never found.
"""

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import model_validator

from kernelyard.campaign.kernelbench_files import statistics
from kernelyard.core.environment import Environment
from kernelyard.core.errors import UsageError
from kernelyard.core.record_file import append_record, read_records
from kernelyard.core.verdict import Record, Timing
from kernelyard.core.whole_file import write_whole
from kernelyard.judge.statistics import Ratio, median, paired_ratio

LEDGER = "kernelyard.jsonl"
BLOCKS = 7
"""Samples of two variants are compared by medians of this many spans of the same time, where each has as many."""
LEAST_SAMPLES = 2
"""Of a variant: a ratio of fewer has no interval."""
LEAST_MS, MOST_MS = 1e-9, 1e12
"""In KernelBench's files, which a solution that replaces the clock's events may have made: a picosecond, thirty years.
Means of ratios of other numbers overflow."""

Holds = tuple[str, str, str, bool]
"""What a measurement is found by: the problem's SHA-256, dtype, device name, training mode."""


class Variant(str, Enum):
    """A way for torch to run the reference."""

    EAGER = "eager"
    COMPILE = "compile"
    MAX_AUTOTUNE = "max-autotune"
    CUDAGRAPHS = "cudagraphs"


FILES = {
    Variant.EAGER: "baseline_time_torch.json",
    Variant.COMPILE: "baseline_time_torch_compile_inductor_default.json",
    Variant.MAX_AUTOTUNE: "baseline_time_torch_compile_inductor_max-autotune.json",
    Variant.CUDAGRAPHS: "baseline_time_torch_compile_cudagraphs.json",
}
"""KernelBench's names."""


class Baseline(Record):
    """One problem, every variant asked for: timed in one process, interleaved."""

    level: int
    problem: int
    problem_name: str
    problem_sha256: str
    dtype: str
    times: dict[Variant, Timing]
    failures: dict[Variant, str]
    """Why a variant has no time. One that cannot run is a fact and not measured again; a lost process is not kept."""
    environment: Environment
    train_mode: bool = False
    seconds: float
    """Wall time, compilation included."""

    @property
    def tried(self) -> set[Variant]:
        """The variants that have a time, or a reason for none."""
        return {*self.times, *self.failures}

    @model_validator(mode="after")
    def _comparable(self) -> "Baseline":
        fewest = min((len(timing.samples_ms) for timing in self.times.values()), default=0)
        if Variant.EAGER not in self.times or fewest < LEAST_SAMPLES:
            raise ValueError(f"expected a time of eager, and {LEAST_SAMPLES} samples or more of every variant")
        return self

    @property
    def best(self) -> Variant:
        """The fastest by `gain`, the number that it enters by: never slower than eager."""
        return max(self._gains, key=lambda variant: self._gains[variant].mean)

    @property
    def conditions(self) -> tuple[str, str, bool]:
        """What it holds for beside its text: dtype, device, training mode."""
        return self.dtype, self.environment.device_name, self.train_mode

    def gain(self, variant: Variant) -> Ratio:
        """Eager's time over the variant's. Raises KeyError where it was not timed."""
        return self._gains[variant]

    @cached_property
    def _gains(self) -> dict[Variant, Ratio]:
        """By variant: every verdict on the problem asks for them."""
        eager = self.times[Variant.EAGER]
        return {variant: _gain(eager, timing) for variant, timing in self.times.items()}


def _gain(eager: Timing, timing: Timing) -> Ratio:
    count = min(BLOCKS, len(eager.samples_ms), len(timing.samples_ms))
    return paired_ratio(_blocks(eager, count), _blocks(timing, count))


def _blocks(timing: Timing, count: int) -> list[float]:
    """Medians of consecutive spans: what the calls of one variant took in each part of the same stretch of time."""
    return [median(part.tolist()) for part in np.array_split(timing.samples_ms, count)]


def _said(dtype: str, device_name: str, train_mode: bool) -> str:
    return f"{dtype} on {device_name} in {'training' if train_mode else 'eval'} mode"


class BaselineFolder:
    """Baselines of one device, dtype and mode."""

    def __init__(self, folder: Path, entries: Iterable[Baseline]) -> None:
        self.folder, self.entries = folder, list(entries)

    @classmethod
    def read(cls, folder: Path) -> "BaselineFolder":
        """What a folder holds; nothing where there is none. A last line that a kill cut short is left out."""
        path = folder / LEDGER
        return cls(folder, read_records(path, Baseline, "kernelyard baseline")[0] if path.is_file() else ())

    @cached_property
    def _found(self) -> dict[Holds, Baseline]:
        return {(each.problem_sha256, *each.conditions): each for each in self.entries}

    def find(self, problem_sha256: str, dtype: str, device_name: str, train_mode: bool) -> Baseline | None:
        """The newest measurement of that text in that dtype and mode on such a device."""
        return self._found.get((problem_sha256, dtype, device_name, train_mode))

    def fits(self, environment: Environment, dtype: str, train_mode: bool) -> None:
        """Raises UsageError where the folder is another device's, dtype's or mode's, or KernelBench's own."""
        wanted = (dtype, environment.device_name, train_mode)
        for each in self.entries:
            if each.conditions != wanted:
                raise UsageError(
                    f"{self.folder}: holds baselines of {_said(*each.conditions)}, not of {_said(*wanted)}; expected"
                    " another --hardware"
                )
        if not self.entries and (theirs := sorted(self.folder.glob("*.json"))):
            raise UsageError(f"{theirs[0]}: not measured by this; expected another --hardware")

    def begin(self) -> None:
        """Make the folder and its ledger: what cannot be written shows before anything is measured."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / LEDGER).touch()

    def add(self, baseline: Baseline) -> None:
        """Keep one more measurement, on disk at once."""
        self.begin()
        append_record(self.folder / LEDGER, baseline)
        self.entries.append(baseline)
        self.__dict__.pop("_found", None)

    def write_kernelbench(self) -> list[Path]:
        """KernelBench's files, made anew: a problem that failed is left out, for null would end their script.

        A variant that has no time left loses its file; one that never had any has none of ours.
        """
        # Read anew: another process may have added to them.
        entries = BaselineFolder.read(self.folder).entries
        newest = {(each.level, each.problem_name): each for each in entries}
        written = []
        for variant, name in FILES.items():
            levels: dict[str, dict[str, Any]] = {}
            for (level, problem), each in sorted(newest.items(), key=lambda item: (item[0][0], item[1].problem)):
                if variant in each.times:
                    device = each.environment
                    stats = statistics(each.times[variant].samples_ms, device.device_name, device.device)
                    levels.setdefault(f"level{level}", {})[problem] = stats
            path = self.folder / name
            if levels:
                write_whole(path, json.dumps(levels, indent=4))
                written.append(path)
            elif any(variant in each.times for each in entries):
                path.unlink(missing_ok=True)
        return written


class KernelBenchBaseline(Record):
    """A baseline file of KernelBench's. It says neither problem text nor dtype nor versions: names are all it has."""

    path: str
    means: dict[str, dict[str, float]]
    """Milliseconds by `level1` and problem file."""
    hardware: tuple[str, ...]

    def level(self, level: int) -> dict[str, float]:
        """Mean milliseconds by problem file; nothing for a level that the file has not."""
        return self.means.get(f"level{level}", {})


def read_kernelbench(path: Path) -> KernelBenchBaseline:
    """Raises UsageError for a file in another format. A problem that failed there (null) is left out."""
    try:
        levels = json.loads(path.read_text())
        entries = {
            level: {name: stats for name, stats in problems.items() if stats is not None}
            for level, problems in levels.items()
        }
        means = {
            level: {name: _milliseconds(stats["mean"]) for name, stats in found.items()}
            for level, found in entries.items()
        }
        hardware = sorted({_hardware(stats) for found in entries.values() for stats in found.values()})
        return KernelBenchBaseline(path=str(path), means=means, hardware=tuple(hardware))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected a baseline file of KernelBench's") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        expected = '{"level1": {"1_x.py": {"mean": 1.23, ...}}}'
        raise UsageError(f"{path}: no baseline file of KernelBench's; expected {expected}") from None


def _milliseconds(mean: Any) -> float:
    if not LEAST_MS <= float(mean) <= MOST_MS:
        raise ValueError
    return float(mean)


def _hardware(stats: Mapping[str, Any]) -> str:
    return str(stats.get("hardware", "unknown hardware"))
