"""Problems and solutions in KernelBench's file format.

A problem file defines `Model` (an nn.Module), `get_inputs()` and `get_init_inputs()`; a solution file defines
`ModelNew` with the same constructor and forward. Problems are trusted and loaded here; solutions are only parsed.
"""

import ast
import sys
import types
from pathlib import Path

from kernelyard.core.errors import UsageError, first_line
from kernelyard.core.problem import Problem, Source

# Larger than any kernel worth reading; a bound on what the parser is given.
MAX_SOURCE_BYTES = 4 << 20


def read_source(path: Path, role: str, expected: str) -> Source:
    """The text of a problem or solution file; raises UsageError if it cannot be one."""
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            raise UsageError(
                f"{path}: over {MAX_SOURCE_BYTES >> 20} MiB; expected a {role} file that defines {expected}"
            )
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected a {role} file that defines {expected}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); expected a {role} file that defines {expected}") from None
    return Source(path, text)


def load_problem(path: Path) -> Problem:
    """Execute a problem file; raises UsageError for one that is not in the format."""
    source = read_source(path, "problem", "Model, get_inputs and get_init_inputs")
    missing = [name for name in ("Model", "get_inputs", "get_init_inputs") if name not in _bound_names(source)]
    if missing:
        raise UsageError(f"{path}: no {' and no '.join(missing)}; expected Model, get_inputs and get_init_inputs")
    module = types.ModuleType("kernelyard_problem")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source.text, str(path), "exec"), module.__dict__)
        return Problem(source, module.Model, module.get_inputs, module.get_init_inputs)
    except Exception as error:
        raise UsageError(f"{path}: fails to load: {first_line(error)}") from None


def read_solution(path: Path) -> Source:
    """Parse, and never run, a solution file; raises UsageError for one that defines no `ModelNew`."""
    source = read_source(path, "solution", "ModelNew")
    if "ModelNew" not in _bound_names(source):
        raise UsageError(f"{path}: no ModelNew; expected a class ModelNew with the constructor and forward of Model")
    return source


def _bound_names(source: Source) -> set[str]:
    """Names that the file binds anywhere: classes, functions, assignments, imports."""
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{source.path}:{line}" if line else str(source.path)
        raise UsageError(f"{where}: syntax error: {getattr(error, 'msg', error)}; expected a Python file") from None
    except (RecursionError, MemoryError):
        raise UsageError(f"{source.path}: nested too deeply to parse; expected a Python file") from None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    return names
