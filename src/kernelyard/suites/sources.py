"""Suites by where they come from: a KernelBench checkout, its dataset on the Hub, a folder of problems, the library."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from kernelyard import ops
from kernelyard.core.errors import UsageError, first_line
from kernelyard.core.problem import Source
from kernelyard.suites.admission import problem_files
from kernelyard.suites.hub import looked_for
from kernelyard.suites.kernelbench import EXPECTED, problem_of, read_source
from kernelyard.suites.operators import operator_source
from kernelyard.suites.suite import Entry, Suite

LEVELS = (1, 2, 3, 4)
DATASET = "ScalingIntelligence/KernelBench"

REPRESENTATIVE = {
    1: (1, 3, 6, 18, 23, 26, 33, 36, 40, 42, 48, 54, 57, 65, 77, 82, 86, 87),
    2: (1, 2, 8, 18, 23, 28, 33, 43),
    3: (1, 5, 8, 11, 20, 21, 33, 38, 43),
}
"""KernelBench's own representative subset, by level; level 4 has none."""


def kernelbench_checkout(path: Path, levels: Sequence[int]) -> Suite:
    """Of a checkout: its root, or the folder that holds `level1` and the others.

    Raises UsageError for a path that is none, and for a level that it lacks.
    """
    if not path.is_dir():
        said = "no folder" if path.exists() else "no such folder"
        raise UsageError(f"{path}: {said}; expected a checkout of KernelBench, or --source huggingface")
    root = next((each for each in (path / "KernelBench", path) if any(each.glob("level[0-9]"))), None)
    if root is None:
        raise UsageError(f"{path}: no level1 in this folder; expected a checkout of KernelBench")
    entries: list[Entry] = []
    for level in levels:
        folder = root / f"level{level}"
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder; expected the problems of level {level}")
        files = [each for each in problem_files([folder]) if leading_number(each.name)]
        if not files:
            raise UsageError(
                f"{folder}: no .py whose name begins with a number; expected the problems of level {level}"
            )
        entries += [_entry(level, leading_number(each.name), _read(each)) for each in files]
    return _kernelbench(entries)


def kernelbench_hub(levels: Sequence[int]) -> Suite:
    """Of the dataset on the Hub, or of its local cache. Raises UsageError where neither can be had."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        lacking = isinstance(error, ModuleNotFoundError) and error.name == "datasets"
        needs = "`pip install datasets`" if lacking else f"`datasets`, which does not import here ({first_line(error)})"
        raise UsageError(f"--source huggingface needs {needs}; or --source local PATH") from None
    entries: list[Entry] = []
    with looked_for(DATASET) as out_of_reach:
        for level in levels:
            try:
                rows = load_dataset(DATASET, split=f"level_{level}")
            except Exception as error:
                why = out_of_reach or first_line(error)
                raise UsageError(
                    f"{DATASET} level {level} cannot be had from the Hub ({why}); expected a network, or "
                    "--source local PATH"
                ) from None
            for row in sorted(rows, key=lambda row: int(row["problem_id"])):
                # The Hub's names lack the ending that a checkout's have, and by which baselines are keyed.
                name = f"{str(row['name']).removesuffix('.py')}.py"
                entries.append(_entry(level, int(row["problem_id"]), Source(Path(name), str(row["code"]))))
    return _kernelbench(entries)


def _kernelbench(entries: Sequence[Entry]) -> Suite:
    for one, next_one in pairwise(entries):
        if _key(one) == _key(next_one):
            paths = f"{one.source.path} and {next_one.source.path}"
            raise UsageError(f"{paths} are both level {one.level} problem {one.number}; expected one")
    return Suite("kernelbench", tuple(entries))


def folder(path: Path) -> Suite:
    """Of problem files, level 0: numbered as their names begin, or by position where none begins with a number.

    Raises UsageError where some do and some do not, or two do alike: one file more would give solutions that were
    judged before to other problems.
    """
    files = [each for each in problem_files([path]) if not each.name.startswith("_")]
    if not files:
        raise UsageError(f"{path}: only names that begin with _, which are no problems; expected a problem file")
    numbers = [leading_number(each.name) for each in files]
    if not any(numbers):
        numbers = list(range(1, len(files) + 1))
    _check_numbers(path, dict(zip((each.name for each in files), numbers, strict=True)))
    entries = sorted((_entry(0, number, _read(each)) for number, each in zip(numbers, files, strict=True)), key=_key)
    return Suite(path.resolve().name, tuple(entries))


def _check_numbers(path: Path, numbers: dict[str, int]) -> None:
    if without := [name for name, number in numbers.items() if not number]:
        others = next(name for name, number in numbers.items() if number)
        raise UsageError(
            f"{path}: {without[0]} begins with no number from 1 on, as {others} does; expected all or none"
        )
    seen: dict[int, str] = {}
    for name, number in numbers.items():
        if number in seen:
            raise UsageError(f"{path}: {seen[number]} and {name} begin with the same number, expected one problem each")
        seen[number] = name


def library(dtype: str, device_type: str) -> Suite:
    """Of the library's operators, level 0, in the order of their names, on their ladders' workloads."""
    sources = [operator_source(name, dtype, device_type) for name in sorted(ops.operator_names())]
    return Suite("library", tuple(_entry(0, number, source) for number, source in enumerate(sources, 1)))


def subset(suite: Suite, wanted: Iterable[int]) -> Suite:
    """The problems of those numbers, in every level that has them. Raises UsageError for one that no level has."""
    wanted = set(wanted)
    known = {entry.number for entry in suite.entries}
    if missing := sorted(wanted - known):
        levels = ", ".join(str(level) for level in sorted({entry.level for entry in suite.entries}))
        where = suite.name if levels == "0" else f"{suite.name} level {levels}"
        raise UsageError(f"{where} has no problem {missing[0]}; expected {spans(known)}")
    return _only(suite, lambda entry: entry.number in wanted)


def representative(suite: Suite) -> Suite:
    """KernelBench's representative subset of what is in `suite`. Raises UsageError where a level has nothing of it."""
    levels = {entry.level for entry in suite.entries}
    chosen = _only(suite, lambda entry: entry.number in REPRESENTATIVE.get(entry.level, ()))
    if without := levels - {entry.level for entry in chosen.entries}:
        said = f"nothing here of level {spans(without)} is in it"
        raise UsageError(f"the representative subset is of KernelBench's levels 1, 2 and 3; {said}")
    return chosen


def leading_number(name: str) -> int:
    """23 of `23_Softmax.py`; 0 where a name begins with no number."""
    found = re.match(r"\d+", name)
    return int(found[0]) if found else 0


def spans(numbers: Iterable[int]) -> str:
    """`1-3, 7` of 1, 2, 3 and 7."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _only(suite: Suite, keep: Callable[[Entry], bool]) -> Suite:
    kept = tuple(entry for entry in suite.entries if keep(entry))
    return Suite(suite.name, kept, whole=suite.whole and len(kept) == len(suite.entries))


def _read(path: Path) -> Source:
    return read_source(path, "problem", EXPECTED)


def _entry(level: int, number: int, source: Source) -> Entry:
    return Entry(level, number, source.path.name, source, partial(problem_of, source))


def _key(entry: Entry) -> tuple[int, int]:
    return entry.level, entry.number
