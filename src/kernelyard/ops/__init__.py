"""The operator library: `kernelyard.ops.softmax(x, dim=-1)` reads like torch.

An operator is a folder holding `definition.py`; a backend of it is a file beside the definition. Both are
found by looking, so adding one edits no list. Importing this package imports no compiler: a backend's own
imports (triton, cuda.core) happen at its first call. A file `peer_<library>.py` is a foreign library's way of the
same operator, for `bench --against`.
"""

from importlib import import_module

from kernelyard.core.operator import Operator
from kernelyard.ops.discovery import (
    backend_module,
    backends,
    definition,
    operator_names,
    peer_module,
    peer_notes,
    peers,
    source_files,
)

__all__ = [
    "Operator",
    "backend_module",
    "backends",
    "definition",
    "operator_names",
    "peer_module",
    "peer_notes",
    "peers",
    "source_files",
]

for _name in operator_names():
    # The import binds the folder's module under this name; the public function replaces it, once and for
    # good, because Python binds a submodule only when it is first loaded.
    globals()[_name] = getattr(import_module(f"{__name__}.{_name}"), _name)
    __all__ += [_name]
