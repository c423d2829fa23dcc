"""Which problems a verb is about: the options that all such verbs share, and the suite that they name."""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from kernelyard.core.errors import UsageError, unknown
from kernelyard.suites.sources import (
    LEVELS,
    folder,
    kernelbench_checkout,
    kernelbench_hub,
    library,
    representative,
    spans,
    subset,
)
from kernelyard.suites.suite import Suite

HUB = "huggingface"
KERNELBENCH, LIBRARY = "kernelbench", "library"
MOST = 1_000_000


@dataclass(frozen=True)
class Selection:
    """What the user chose; each field is an option of every verb that takes a suite."""

    suite: Annotated[str, typer.Option(help="kernelbench, library, a folder of problem files, or one .py of them.")] = (
        KERNELBENCH
    )
    source: Annotated[
        str | None, typer.Option(metavar="local PATH|huggingface", help="Where KernelBench is: a checkout, or the Hub.")
    ] = None
    level: Annotated[list[str] | None, typer.Option(help="KernelBench's: 2, or 1,3, or 1-3; by default 1-4.")] = None
    ids: Annotated[list[str] | None, typer.Option(help="Problems by number: 1,3,10-20; in every level chosen.")] = None
    representative: Annotated[
        bool, typer.Option("--representative", help="KernelBench's representative subset of levels 1-3.")
    ] = False

    def load(self, dtype: str, device_type: str) -> Suite:
        """The suite that was chosen; `dtype` (torch's name) and `device_type` are for the library's workloads.

        Raises UsageError, one line, for what is not there.
        """
        suite = self._whole(dtype, device_type)
        if self.representative:
            suite = representative(suite)
        return suite if self.ids is None else subset(suite, numbers(self.ids, "--ids"))

    def _whole(self, dtype: str, device_type: str) -> Suite:
        if self.suite == KERNELBENCH:
            return self._kernelbench()
        if self.source is not None or self.level is not None or self.representative:
            raise UsageError(f"--source, --level and --representative are for --suite kernelbench, not {self.suite}")
        if self.suite == LIBRARY:
            return library(dtype, device_type)
        path = Path(self.suite)
        if path.is_dir() or (path.suffix == ".py" and path.exists()):
            return folder(path)
        if path.exists():
            raise UsageError(f"{path}: no .py; expected kernelbench, library, a folder of problem files or one of them")
        if path.name == self.suite:
            raise unknown("suite", self.suite, [KERNELBENCH, LIBRARY, "a folder of problem files"])
        raise UsageError(f"{path}: no such folder; expected kernelbench, library or a folder of problem files")

    def _kernelbench(self) -> Suite:
        levels = LEVELS if self.level is None else numbers(self.level, "--level")
        for level in levels:
            if level not in LEVELS:
                raise UsageError(f"unknown level {level}; expected {spans(LEVELS)}")
        if self.representative and self.level is None:
            levels = LEVELS[:3]
        if self.source is None:
            raise UsageError("--suite kernelbench needs --source local PATH, or --source huggingface")
        return kernelbench_hub(levels) if self.source == HUB else kernelbench_checkout(Path(self.source), levels)


def numbers(parts: Sequence[str], option: str) -> tuple[int, ...]:
    """`1`, `3` and `10-20` as numbers in order, each once. Raises UsageError for anything else."""
    found: set[int] = set()
    for part in parts:
        # Of at most as many digits as MOST: Python refuses to read thousands of them.
        match = re.fullmatch(r"\s*(\d{1,7})(?:\s*-\s*(\d{1,7}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= MOST:
            raise UsageError(f"{option} {','.join(parts)!r}: expected numbers and ranges, like 1,3,10-20")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def with_selection(command: Callable[..., Any]) -> Callable[..., Any]:
    """A typer command whose parameter `selection: Selection` becomes one option for each field of it."""
    hints = get_type_hints(Selection, include_extras=True)
    options = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in fields(Selection)
    ]

    @wraps(command)
    def called(**given: Any) -> Any:
        chosen = {option.name: given.pop(option.name) for option in options}
        return command(**given, selection=Selection(**chosen))

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        parameters += options if parameter.name == "selection" else own
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
