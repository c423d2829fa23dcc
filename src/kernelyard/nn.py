"""The operators as modules: torch's own argument names and `state_dict` keys, found in the operators' folders.

A folder's `module.py` names what it offers in its `__all__`.
"""

from importlib import import_module
from pathlib import Path

__all__: list[str] = []

for _path in sorted((Path(__file__).parent / "ops").glob("*/module.py")):
    _module = import_module(f"kernelyard.ops.{_path.parent.name}.module")
    for _name in _module.__all__:
        globals()[_name] = getattr(_module, _name)
        __all__ += [_name]
