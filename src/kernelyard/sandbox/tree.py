"""A folder of built files as bytes: what a compile worker hands over, and a run worker unpacks.

Eight bytes of length, an index in JSON, then the files' contents. Whoever reads one was given it by a stranger's
process, so the index is checked before anything is believed: regular files only, names that stay below the folder,
bounded counts and sizes. Modification times cross to the nanosecond: by them ninja knows that nothing is left to do.
"""

import json
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

MAX_BYTES = 256 << 20
"""Of all that crosses. An extension of torch's is 1 MB, one with many kernels 50."""
MAX_FILES = 2048
_MAX_INDEX = 1 << 20
_MAX_NAME = 512
_HEADER = struct.Struct("<Q")
# torch's mark that someone is building: who found it would wait for ever.
_NOT_KEPT = "lock"


class BadTree(ValueError):
    """Bytes that are no tree, or a folder that cannot be one."""


@dataclass(frozen=True)
class Entry:
    """One file: its name below the folder, permissions, modification time and size in bytes."""

    name: str
    mode: int
    mtime_ns: int
    size: int


def pack(folder: Path, into: memoryview) -> int:
    """Write the files below `folder`; returns the bytes written, 0 for no files. Raises BadTree if they don't fit."""
    found = list(_files(folder))
    if not found:
        return 0
    index = json.dumps([asdict(entry) for _, entry in found]).encode()
    total = _HEADER.size + len(index) + sum(entry.size for _, entry in found)
    if len(found) > MAX_FILES or len(index) > _MAX_INDEX or total > len(into):
        raise BadTree(f"{len(found)} files of {total} bytes; at most {MAX_FILES} of {len(into)} are taken")
    _HEADER.pack_into(into, 0, len(index))
    place = _HEADER.size + len(index)
    into[_HEADER.size : place] = index
    for path, entry in found:
        contents = path.read_bytes()
        if len(contents) != entry.size:
            raise BadTree(f"{entry.name} changed while it was read")
        into[place : place + entry.size] = contents
        place += entry.size
    return total


def entries(tree: bytes | memoryview) -> list[tuple[Entry, memoryview]]:
    """Every file with its contents. Raises BadTree unless all of it is in order."""
    whole = memoryview(tree)
    if len(whole) < _HEADER.size:
        raise BadTree("no header")
    (length,) = _HEADER.unpack_from(whole)
    place = _HEADER.size + length
    if length > _MAX_INDEX or place > len(whole):
        raise BadTree(f"an index of {length} bytes")
    try:
        listed = json.loads(bytes(whole[_HEADER.size : place]))
        index = [Entry(**fields) for fields in listed]
    except (ValueError, TypeError, RecursionError):
        raise BadTree("an index that is not one") from None
    if len(index) > MAX_FILES or len({entry.name for entry in index if isinstance(entry.name, str)}) != len(index):
        raise BadTree("too many files, or two of one name")
    found = []
    for entry in index:
        _check(entry)
        found.append((entry, whole[place : place + entry.size]))
        place += entry.size
    if place != len(whole):
        raise BadTree(f"{len(whole)} bytes where the index says {place}")
    return found


def unpack(tree: bytes | memoryview, folder: Path) -> None:
    """Write the files below `folder`, which holds none of them yet. Raises BadTree or OSError."""
    for entry, contents in entries(tree):
        path = folder / entry.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(contents)
        path.chmod(entry.mode)
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))


def _files(folder: Path) -> Iterator[tuple[Path, Entry]]:
    for directory, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(directory, name)
            about = path.lstat()
            if stat.S_ISREG(about.st_mode) and name != _NOT_KEPT:
                relative = path.relative_to(folder).as_posix()
                yield path, Entry(relative, about.st_mode & 0o777, about.st_mtime_ns, about.st_size)


def _check(entry: Entry) -> None:
    whole = all(type(value) is int for value in (entry.mode, entry.mtime_ns, entry.size))
    if type(entry.name) is not str or not whole:
        raise BadTree("an entry with a field of another type")
    parts = entry.name.split("/")
    plain = "" not in parts and "." not in parts and ".." not in parts and "\0" not in entry.name
    if not plain or PurePosixPath(entry.name).is_absolute() or not 0 < len(entry.name) <= _MAX_NAME:
        raise BadTree(f"a name that is none: {entry.name[:80]!r}")
    if not 0 <= entry.mode <= 0o777 or not 0 <= entry.mtime_ns < 1 << 63 or not 0 <= entry.size <= MAX_BYTES:
        raise BadTree(f"{entry.name[:80]!r} has a mode, a time or a size that no file has")
