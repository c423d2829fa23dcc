"""Where this program keeps things between its runs: what can be made again, and what must not be forgotten."""

import os
from pathlib import Path

from kernelyard.core.errors import UsageError


def cache_folder() -> Path:
    """$KERNELYARD_CACHE, or `kernelyard` among the user's caches. Not made here."""
    explicit = os.environ.get("KERNELYARD_CACHE")
    return Path(explicit) if explicit else _home("XDG_CACHE_HOME", ".cache")


def state_folder() -> Path:
    """$KERNELYARD_STATE, or `kernelyard` among the user's state. Not made here."""
    explicit = os.environ.get("KERNELYARD_STATE")
    return Path(explicit) if explicit else _home("XDG_STATE_HOME", ".local/state")


def check_folder(path: Path) -> None:
    """Raises UsageError where no folder can be made: something else is there, or above it."""
    there = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not there.is_dir():
        raise UsageError(f"{path}: {there} is no folder; expected one, or a new name")


def _home(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default) / "kernelyard"
