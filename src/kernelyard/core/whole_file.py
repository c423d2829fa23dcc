"""Files that a reader finds whole or not at all, whenever their writer is killed."""

import os
import stat
import tempfile
from pathlib import Path

from kernelyard.core.errors import UsageError


def named_by(path: Path) -> Path:
    """The path without links; one that leads back to itself stays, where Path.resolve raises before Python 3.13."""
    return Path(os.path.realpath(path))


def check_place(path: Path) -> None:
    """Raises the UsageError that `write_whole` will: where no folder is there for it, or no file is in its place."""
    place = named_by(path)
    if place.is_symlink():
        raise UsageError(f"{path}: a link that leads back to itself; expected one to a file, or a new name")
    if not place.parent.is_dir():
        raise UsageError(f"{path}: there is no such folder; expected one to write it into")
    if path.exists() and not path.is_file():
        # A device or a pipe would be replaced by a file: /dev/null once was.
        raise UsageError(f"{path} is no file; expected one to write, or a new name")


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a new file beside the old one, or beside what a link names, and puts it in its place in one step.

    Raises UsageError as `check_place`; an OSError names `path`.
    """
    check_place(path)
    try:
        _replace(named_by(path), content)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _replace(path: Path, content: str | bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes a file for its owner alone. A new one is shared like any other file beside it, an old one stays
        # as private as it was.
        Path(name).chmod(stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
