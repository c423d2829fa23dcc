"""The solutions in a run's folder: `level_L_problem_P_sample_S_kernel.py`, as KernelBench names them, or
`PROBLEM/SAMPLE.py`, where PROBLEM is the problem's name and SAMPLE a number: `23_Softmax/0.py`, `softmax/3.py`.

They are read here, and neither parsed nor run: a text that is no Python is a verdict and no error.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelyard.campaign.records import Candidate, Key
from kernelyard.core.errors import UsageError
from kernelyard.core.plural import counted
from kernelyard.core.problem import Source
from kernelyard.core.regular_file import read_at_most
from kernelyard.suites.kernelbench import MAX_SOURCE_BYTES
from kernelyard.suites.suite import Suite

LAYOUTS = "level_L_problem_P_sample_S_kernel.py, or PROBLEM/SAMPLE.py"
NAMED = 3
"""Of the files that are left out, by name."""
_KERNELBENCH = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_OWN = re.compile(r"(\d+)\.py")
# What a row of the ledger holds.
_MOST = 2**63 - 1


@dataclass(frozen=True)
class Found:
    """What a run's folder holds for a suite."""

    candidates: tuple[Candidate, ...]
    """In the order of their keys, each key once."""
    unwanted: tuple[str, ...]
    """Solutions to problems that are not in the suite, by either layout: their paths in the folder."""
    unreadable: tuple[str, ...]
    """Why each file that has a solution's name and cannot be read, or kept, is none."""
    misnamed: tuple[str, ...] = ()
    """Python files whose names begin as KernelBench's do and end otherwise."""

    @property
    def said_unwanted(self) -> str:
        """How many of those there are, and the first by name; empty where there are none."""
        return _unchosen(self.unwanted) if self.unwanted else ""


def demand_folder(folder: Path) -> None:
    """Raises UsageError where there is none."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; expected one that holds {LAYOUTS}")


def find(folder: Path, suite: Suite) -> Found:
    """The candidates in `folder`. Raises UsageError for one without any that can be read, and for two of one key."""
    demand_folder(folder)
    found: dict[Key, Path] = {}
    unreadable: list[UsageError] = []
    unwanted: list[str] = []
    for key, path in files(folder, {place: entry.name for place, entry in suite.by_place.items()}):
        if key is None:
            unwanted.append(str(path.relative_to(folder)))
        elif key.sample > _MOST:
            unreadable.append(UsageError(f"{path}: no sample has such a number; expected {_MOST} at most"))
        elif key in found:
            raise UsageError(f"{path} and {found[key]} are both sample {key.sample} of one problem; expected one")
        else:
            found[key] = path
    if not found and not unreadable:
        others = f" ({_unchosen(unwanted)})" if unwanted else ""
        raise UsageError(f"{folder}: no solution to a problem of {suite.name}{others}; expected {LAYOUTS}")
    candidates: list[Candidate] = []
    for key in sorted(found):
        try:
            candidates.append(Candidate(key, read(found[key])))
        except UsageError as error:
            unreadable.append(error)
    if not candidates:
        raise unreadable[0]
    misnamed = sorted(path.name for path in folder.glob("level_*.py") if not _KERNELBENCH.fullmatch(path.name))
    return Found(tuple(candidates), tuple(unwanted), tuple(map(str, unreadable)), tuple(misnamed))


def _unchosen(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    said = counted(len(names), "is for a problem that was not chosen", "are for problems that were not chosen")
    return f"{said}: {', '.join(names[:NAMED])}{more}"


def levels_of(folder: Path) -> set[int]:
    """The levels that solutions in `folder` name."""
    return {key.level for key, _ in _numbered(folder)}


def keys(folder: Path, names: Mapping[tuple[int, int], str] | None = None) -> set[Key]:
    """The samples that `folder` has solutions of: to the problems in `names`, else to whatever KernelBench's names
    say."""
    found = _numbered(folder) if names is None else files(folder, names)
    return {key for key, _ in found if key is not None}


def read(path: Path) -> Source:
    """The file's text. Raises UsageError where it cannot be read, is no UTF-8, or is a link to what is no .py.

    What is read is shown in the report: a folder of somebody else's solutions could link to the reader's secrets.
    """
    try:
        if path.is_symlink() and path.resolve().suffix != ".py":
            raise OSError("a link to what is no .py")
        # What is beyond cannot be judged; cut, maybe within a letter, it stays what `too_large` refuses.
        held = read_at_most(path, MAX_SOURCE_BYTES + 1)
        return Source(path, held.decode("utf-8", "replace" if len(held) > MAX_SOURCE_BYTES else "strict"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); expected a solution") from None


def readable_solution(path: Path) -> Source | None:
    """None where it cannot be read: whoever looks at a run need not be who judged it."""
    try:
        return read(path)
    except UsageError:
        return None


def files(folder: Path, names: Mapping[tuple[int, int], str]) -> Iterator[tuple[Key | None, Path]]:
    """Every file that has a solution's name; without a key where its problem is not among `names`, by place."""
    for key, path in _numbered(folder):
        yield key if (key.level, key.problem) in names else None, path
    # Problems of two levels may share a name.
    named: dict[str, list[tuple[int, int] | None]] = {}
    for place, name in names.items():
        named.setdefault(name.removesuffix(".py"), []).append(place)
    for path in sorted(folder.glob("*/*.py")):
        if match := _OWN.fullmatch(path.name):
            for one in named.get(path.parent.name, [None]):
                yield Key(*one, int(match[1])) if one is not None else None, path


def _numbered(folder: Path) -> Iterator[tuple[Key, Path]]:
    """Those that KernelBench's names say all of."""
    for path in sorted(folder.glob("level_*_kernel.py")):
        if match := _KERNELBENCH.fullmatch(path.name):
            yield Key(*(int(number) for number in match.groups())), path
