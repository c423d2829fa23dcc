"""A candidate's source, imported as the text that was read, and what its failures are called."""

import importlib.util
import io
import os
import sys
import tokenize
from pathlib import Path
from typing import Any

import torch

from kernelyard.core.errors import first_line
from kernelyard.core.problem import without_mark
from kernelyard.sandbox.wire import Failure

MESSAGE_LIMIT = 2000
# Exceptions that mean the kernel did not compile, by class name: they belong to packages that may not be installed.
COMPILE_ERRORS = {
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "PTXASError",
    "NVRTCError",
}


def extensions() -> Path:
    """Where torch builds them."""
    return Path(os.environ["TORCH_EXTENSIONS_DIR"])


def import_text(request: dict[str, Any]) -> Any:
    """The module of a request's source. Raises SyntaxError for a text that declares to be another one."""
    os.environ.update(request["environment"])
    source = Path(os.environ["TMPDIR"]) / request["file_name"]
    text = without_mark(request["source"])
    _require_as_read(text)
    source.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(source.stem, source)
    if spec is None:
        raise ImportError(f"{source.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[source.stem] = module
    # Not by its loader: behind a carriage return that finds an encoding, and `tokenize` does not.
    exec(compile(text, source, "exec", dont_inherit=True), module.__dict__)
    return module


def _require_as_read(text: str) -> None:
    """The judge reads UTF-8. In utf-7 code begins in what it took for a comment, and Triton and TorchScript, which
    read a function's source from the file, believe what the file declares."""
    raw = text.encode()
    declared, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    if raw.decode(declared, "replace") != text:
        raise SyntaxError(f"the text declares the encoding {declared}, in which it is another text; expected utf-8")


def failure_of(error: Exception, phase: str) -> Failure:
    """What the judge is told of it."""
    message = first_line(error)[:MESSAGE_LIMIT]
    names = {base.__name__ for base in type(error).__mro__}
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return Failure(kind="out_of_memory", message=message)
    building = isinstance(error, RuntimeError) and "building extension" in message.lower()
    if building or isinstance(error, SyntaxError) or names & COMPILE_ERRORS:
        cause = next((line.strip() for line in str(error).splitlines() if "error:" in line), "")
        return Failure(kind="compile_error", message=f"{message} {cause}".strip()[:MESSAGE_LIMIT])
    return Failure(kind="load_error" if phase in ("build", "unpack", "load") else "runtime_error", message=message)
