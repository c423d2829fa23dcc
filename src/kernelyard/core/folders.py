"""Where this program keeps things between its runs: what can be made again, and what must not be forgotten."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$KERNELYARD_CACHE, or `kernelyard` among the user's caches. Not made here."""
    explicit = os.environ.get("KERNELYARD_CACHE")
    return Path(explicit) if explicit else _home("XDG_CACHE_HOME", ".cache")


def state_folder() -> Path:
    """$KERNELYARD_STATE, or `kernelyard` among the user's state. Not made here."""
    explicit = os.environ.get("KERNELYARD_STATE")
    return Path(explicit) if explicit else _home("XDG_STATE_HOME", ".local/state")


def _home(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default) / "kernelyard"
