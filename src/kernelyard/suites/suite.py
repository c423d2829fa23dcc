"""A suite: numbered problems of one source, and the hash of what they say."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from kernelyard.core.problem import Problem, Source


@dataclass(frozen=True)
class Entry:
    """One problem of a suite, not loaded yet."""

    level: int
    """KernelBench's level; 0 where a suite has none."""
    number: int
    """Counted from 1 within its level; KernelBench's is the number that its file's name begins with."""
    name: str
    """The file's name, `23_Softmax.py`, `softmax.py` of an operator."""
    source: Source
    load: Callable[[], Problem] = field(repr=False, compare=False)
    """Runs the source; raises UsageError for one that is no problem."""


@dataclass(frozen=True)
class Suite:
    """Problems in the order of their level and number, each pair there once."""

    name: str
    entries: tuple[Entry, ...]
    whole: bool = True
    """Nothing of the source's levels was left out."""

    def __post_init__(self) -> None:
        keys = [(entry.level, entry.number) for entry in self.entries]
        if keys != sorted(set(keys)):
            raise ValueError("a suite's problems come in the order of level and number, each once")

    @property
    def sha256(self) -> str:
        """Of every problem's level, number and text: two runs are of the same suite where it is equal."""
        said = (f"{entry.level} {entry.number} {entry.source.sha256}\n" for entry in self.entries)
        return hashlib.sha256("".join(said).encode()).hexdigest()

    def entry(self, level: int, number: int) -> Entry | None:
        """The problem of that level and number, where there is one."""
        return self.by_place.get((level, number))

    @cached_property
    def texts(self) -> dict[tuple[int, int], str]:
        """SHA-256 of each problem's text, by level and number."""
        return {place: entry.source.sha256 for place, entry in self.by_place.items()}

    @cached_property
    def by_place(self) -> dict[tuple[int, int], Entry]:
        """Each problem, by level and number."""
        return {(entry.level, entry.number): entry for entry in self.entries}
