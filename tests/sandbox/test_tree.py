"""A folder as bytes: what comes out is what went in, and nothing that is not a tree is taken for one."""

import json
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelyard.sandbox import tree
from kernelyard.sandbox.tree import BadTree, Entry, entries, pack, unpack


def packed(folder: Path, room: int = 1 << 20) -> bytes:
    memory = bytearray(room)
    return bytes(memory[: pack(folder, memoryview(memory))])


def made(*listed: dict[str, object], contents: bytes = b"") -> bytes:
    index = json.dumps(listed).encode()
    return struct.pack("<Q", len(index)) + index + contents


def entry(**other: object) -> dict[str, object]:
    return {"name": "a", "mode": 0o644, "mtime_ns": 1, "size": 0} | other


def test_files_come_back_with_contents_modes_and_times_to_the_nanosecond(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "sub").mkdir(parents=True)
    (source / "sub/library.so").write_bytes(b"\x7fELF" + bytes(1000))
    (source / "sub/library.so").chmod(0o755)
    (source / ".ninja_log").write_text("log")
    os.utime(source / ".ninja_log", ns=(1, 1_700_000_000_123_456_789))
    unpack(packed(source), target)
    assert (target / "sub/library.so").read_bytes() == (source / "sub/library.so").read_bytes()
    assert (target / "sub/library.so").stat().st_mode & 0o777 == 0o755
    assert (target / ".ninja_log").stat().st_mtime_ns == 1_700_000_000_123_456_789


def test_links_and_torchs_lock_are_left_behind(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "pipe").parent.joinpath("lock").touch()
    os.mkfifo(tmp_path / "pipe")
    assert packed(tmp_path) == b""
    assert packed(tmp_path / "absent") == b""


def test_what_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    with pytest.raises(BadTree, match="at most"):
        packed(tmp_path, room=1000)
    monkeypatch.setattr(tree, "MAX_FILES", 0)
    with pytest.raises(BadTree, match="at most"):
        packed(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../a", "a/../../b", "a//b", "a/", "./a", "", "a\0b", "x" * 600, 7, None],
)
def test_a_name_that_leaves_the_folder_is_refused(name: object, tmp_path: Path) -> None:
    with pytest.raises(BadTree):
        unpack(made(entry(name=name)), tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    "listed",
    [
        [entry(size=-1)],
        [entry(size=1)],
        [entry(size=True)],
        [entry(mode=0o4755)],
        [entry(mtime_ns=-1)],
        [entry(mtime_ns=1e9)],
        [entry(), entry()],
        [entry(more=1)],
        ["a"],
        [{}],
    ],
    ids=str,
)
def test_an_index_that_lies_is_refused(listed: list[object]) -> None:
    index = json.dumps(listed).encode()
    with pytest.raises(BadTree):
        entries(struct.pack("<Q", len(index)) + index)


@given(st.binary(max_size=200) | st.builds(lambda b: struct.pack("<Q", len(b)) + b, st.binary(max_size=200)))
def test_garbage_is_a_tree_or_refused(data: bytes) -> None:
    try:
        found = entries(data)
    except BadTree:
        return
    assert all(isinstance(entry, Entry) for entry, _ in found)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(FileExistsError):
        unpack(made(entry(size=6), contents=b"theirs"), tmp_path)
    assert (tmp_path / "a").read_text() == "mine"
