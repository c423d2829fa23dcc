"""Files of strangers: a device or a pipe under a file's name has no end, or never begins."""

import errno
import stat
from pathlib import Path


def read_at_most(path: Path, size: int) -> bytes:
    """The first `size` bytes. Raises OSError, for what is not a regular file as well."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as file:
        return file.read(size)
