"""Kernelyard: build a GPU kernel, prove it, time it against the speed of light."""

import importlib
from types import ModuleType

__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    """`kernelyard.ops` and `kernelyard.nn` after `import kernelyard` alone; they import torch, which takes a second."""
    if name in ("ops", "nn"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
