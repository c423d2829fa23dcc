"""Files that a reader finds whole or not at all, whenever their writer is killed."""

import errno
import os
import tempfile
from pathlib import Path


def check_place(path: Path) -> None:
    """Raises the OSError that `write_whole` will where no folder is there for it, or a folder is in its place."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a new file beside the old one and puts it in its place in one step. An OSError names `path`."""
    try:
        _replace(path, content)
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
        # mkstemp makes a file for its owner alone; these are shared like any other file beside them.
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
