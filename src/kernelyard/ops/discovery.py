"""What the operator library holds, read off its folders."""

import ast
import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

from kernelyard.core.errors import FAULTS, UsageError, first_line, unknown
from kernelyard.core.interpreter import round_to_nearest
from kernelyard.core.operator import Backend, Operator

_ROOT = Path(__file__).parent
_PEER = "peer_"


def operator_names() -> list[str]:
    """The folders that hold a definition, in alphabetical order."""
    return sorted(path.parent.name for path in _ROOT.glob("*/definition.py"))


def definition(name: str) -> Operator:
    """The definition of an operator.

    Raises UsageError with the nearest name for one that does not exist, and for a file that defines none.
    """
    _check_operator(name)
    return _holding(name, "definition", ["DEFINITION"]).DEFINITION


def backends(name: str) -> list[Backend]:
    """The backends an operator is written in, in the ladder's order."""
    _check_operator(name)
    return [backend for backend in Backend if (_ROOT / name / f"{backend.value}.py").exists()]


def backend_module(name: str, backend: Backend | str) -> ModuleType:
    """The module of one backend: a function named as the operator, and `refusal` with the same arguments.

    Raises UsageError for a backend the operator does not have, and for a file that does not define both.
    """
    known = [item.value for item in backends(name)]
    wanted = backend.value if isinstance(backend, Backend) else backend
    if wanted not in known:
        raise unknown("backend", wanted, known)
    if wanted == Backend.TRITON.value:
        round_to_nearest()
    return _holding(name, wanted, [name, "refusal"])


def peers(name: str) -> list[str]:
    """The foreign libraries that an operator is measured against, by their files `peer_<library>.py`."""
    _check_operator(name)
    return sorted(path.stem.removeprefix(_PEER) for path in (_ROOT / name).glob(f"{_PEER}*.py"))


def peer_module(name: str, library: str) -> ModuleType:
    """A foreign library's way of an operator, in the shape of a backend's module.

    Raises UsageError for a peer the operator does not have, ImportError where the library is not installed.
    """
    known = peers(name)
    if library not in known:
        raise unknown(f"peer of {name}", library, known)
    return import_module(f"kernelyard.ops.{name}.{_PEER}{library}")


def peer_notes(name: str) -> dict[str, str]:
    """What peers say they compute beyond the operator, by library: the literal `NOTE` of their files, which are read
    and not run, because the libraries need not be here."""
    notes = {}
    for library in peers(name):
        for statement in ast.parse((_ROOT / name / f"{_PEER}{library}.py").read_text()).body:
            if isinstance(statement, ast.Assign) and [ast.unparse(target) for target in statement.targets] == ["NOTE"]:
                notes[library] = str(ast.literal_eval(statement.value))
    return notes


def source_files(name: str, backend: Backend | str) -> list[Path]:
    """The files a backend is written in: its Python, and where it has any its CUDA C++ and headers.

    These lie beside it, or beside the kernels that a family of operators shares, whose Python it imports from. What
    serves every operator, as the headers of `kernels/include` do, does not count.
    """
    module = backend_module(name, backend)
    file = Path(module.__file__ or "")
    if file.stem != Backend.CUDA.value:
        return [file]
    origins = [inspect.getmodule(value) for value in vars(module).values()]
    ours = [Path(origin.__file__ or "") for origin in origins if origin and origin.__name__.startswith("kernelyard.")]
    folders = sorted({path.parent for path in (file, *ours)})
    return [file, *(source for folder in folders for source in sorted(folder.glob("*.cu*")))]


def _holding(name: str, file: str, expected: list[str]) -> ModuleType:
    """A file of an operator's folder, imported. Raises UsageError where that fails or what is expected is not there.

    The folder may be one that somebody is about to write: it is no reason for a traceback of `kernelyard list`.
    """
    path = f"ops/{name}/{file}.py"
    try:
        module = import_module(f"kernelyard.ops.{name}.{file}")
    except (UsageError, ModuleNotFoundError):
        raise  # a compiler that is not installed: the backend is passed over, or refused by name
    except FAULTS as error:
        raise UsageError(f"{path} cannot be imported: {first_line(error)}; expected {' and '.join(expected)}") from None
    if missing := [each for each in expected if not hasattr(module, each)]:
        raise UsageError(f"{path} defines no {' and no '.join(missing)}; expected {' and '.join(expected)}")
    return module


def _check_operator(name: str) -> None:
    if name not in operator_names():
        raise unknown("operator", name, operator_names())
