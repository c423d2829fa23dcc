"""Problems and solutions in KernelBench's file format.

A problem file defines `Model` (an nn.Module), `get_inputs()` and `get_init_inputs()`; a solution file defines
`ModelNew` with the same constructor and forward. Problems are trusted and loaded here; solutions are only parsed.

Three more names of a problem file are ours: `NO_STRESS`, the stresses that its inputs must not be subjected to (True
for all; the names are those of `judge/stress.py`), `ALLOW_NONFINITE`, True where NaN and infinities are right answers,
or the names of the outputs in which they are (`output`, `output[1]`), and `IN_PLACE`, True where a solution may
overwrite its inputs.
"""

import ast
import io
import json
import sys
import types
from contextlib import suppress
from pathlib import Path

from kernelyard.core.errors import FAULTS, UsageError, first_line, unknown
from kernelyard.core.problem import Problem, Source, without_mark
from kernelyard.core.regular_file import read_at_most
from kernelyard.judge.stress import NAMES

EXPECTED = "Model, get_inputs and get_init_inputs"
# Larger than any kernel worth reading; a bound on what the parser is given.
MAX_SOURCE_BYTES = 4 << 20
MAX_SOLUTION_BYTES = 512 << 10
"""Of a solution, as JSON writes it: a hundred times what a language model does."""
# Packages of KernelBench's problems; the extra in pyproject.toml installs them.
IN_EXTRA = ("einops", "transformers")


def read_source(path: Path, role: str, expected: str) -> Source:
    """The text of a problem or solution file; raises UsageError if it cannot be one."""
    try:
        content = read_at_most(path, MAX_SOURCE_BYTES + 1)
        if len(content) > MAX_SOURCE_BYTES:
            raise UsageError(
                f"{path}: over {MAX_SOURCE_BYTES >> 20} MiB; expected a {role} file that defines {expected}"
            )
        # As Python reads its own files, whatever their line ends: a problem is known by the hash of its text.
        text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected a {role} file that defines {expected}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); expected a {role} file that defines {expected}") from None
    return Source(path, text)


def load_problem(path: Path) -> Problem:
    """Execute a problem file; raises UsageError for one that is not in the format."""
    return problem_of(read_source(path, "problem", EXPECTED))


def problem_of(source: Source) -> Problem:
    """Execute a problem's text; raises UsageError for one that is not in the format."""
    path = source.path
    text = without_mark(source.text)
    bound = _bound_names(parsed(path, text))
    missing = [name for name in ("Model", "get_inputs", "get_init_inputs") if name not in bound]
    if missing:
        raise UsageError(f"{path}: no {' and no '.join(missing)}; expected {EXPECTED}")
    module = types.ModuleType("kernelyard_problem")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
        required = (module.Model, module.get_inputs, module.get_init_inputs)
    except FAULTS as error:
        raise UsageError(f"{path}: fails to load: {first_line(error)}{_remedy(error)}") from None
    return Problem(
        source,
        *required,
        no_stress=_no_stress(path, getattr(module, "NO_STRESS", ())),
        allow_nonfinite=_allow_nonfinite(path, getattr(module, "ALLOW_NONFINITE", False)),
        in_place=_in_place(path, getattr(module, "IN_PLACE", False)),
    )


def _remedy(error: BaseException) -> str:
    lacks = isinstance(error, ModuleNotFoundError) and error.name in IN_EXTRA
    return "; `pip install 'kernelyard[kernelbench]'` installs it" if lacks else ""


def _no_stress(path: Path, declared: object) -> frozenset[str]:
    if declared is True:
        return frozenset(NAMES)
    if not isinstance(declared, (list, tuple, set, frozenset)):
        raise UsageError(f"{path}: NO_STRESS is {declared!r}; expected True, or names out of {', '.join(NAMES)}")
    for name in declared:
        if name not in NAMES:
            raise unknown(f"stress in {path}", str(name), NAMES)
    return frozenset(declared)


def _in_place(path: Path, declared: object) -> bool:
    if not isinstance(declared, bool):
        raise UsageError(f"{path}: IN_PLACE is {declared!r}; expected True or False")
    return declared


def _allow_nonfinite(path: Path, declared: object) -> bool | frozenset[str]:
    if isinstance(declared, bool):
        return declared
    if isinstance(declared, (list, tuple, set, frozenset)) and all(isinstance(name, str) for name in declared):
        return frozenset(declared)
    raise UsageError(f"{path}: ALLOW_NONFINITE is {declared!r}; expected True, False or names of outputs")


def read_solution(path: Path) -> Source:
    """Parse, and never run, a solution file; raises UsageError for one that defines no `ModelNew`.

    What is no Python at all is the judge's to tell: it is a model's answer as often as a slip, and has a verdict.
    """
    source = read_source(path, "solution", "ModelNew")
    with suppress(_NotPython):
        if "ModelNew" not in _bound_names(parsed(path, without_mark(source.text))):
            expected = "a class ModelNew with the constructor and forward of Model"
            raise UsageError(f"{path}: no ModelNew; expected {expected}")
    if too_large(source):
        raise UsageError(f"{path}: more than a worker is given; expected {MAX_SOLUTION_BYTES} bytes of text at most")
    return source


def too_large(source: Source) -> bool:
    """Whether it is more than a worker is given."""
    return len(json.dumps(source.text)) > MAX_SOLUTION_BYTES


class _NotPython(UsageError):
    """A file does not parse."""


def parsed(path: Path, text: str) -> ast.Module:
    """The syntax tree of a file's text; raises UsageError for one that is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else str(path)
        raise _NotPython(f"{where}: syntax error: {getattr(error, 'msg', error)}; expected a Python file") from None
    except (RecursionError, MemoryError):
        raise UsageError(f"{path}: nested too deeply to parse; expected a Python file") from None


def _bound_names(tree: ast.Module) -> set[str]:
    """Names that a file binds anywhere: classes, functions, assignments, imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    return names
