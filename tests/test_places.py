"""Where files and folders are written: what stands there already is looked at first."""

import os
from pathlib import Path

import pytest
import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.folders import check_folder
from kernelyard.core.whole_file import check_place, write_whole
from kernelyard.report.ledger import require_ledger
from kernelyard.sandbox.health import Ward


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_never_replaced(make, tmp_path: Path) -> None:
    """As root a device would be: /dev/null was a file for two minutes."""
    place = tmp_path / "there"
    make(place)
    for write in (check_place, lambda path: write_whole(path, "x")):
        with pytest.raises(UsageError, match="there is no file; expected one to write"):
            write(place)
    assert list(tmp_path.iterdir()) == [place] and not place.is_file()


def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder" / "file")
    write_whole(link, "x")
    assert link.is_symlink() and (tmp_path / "folder" / "file").read_text() == "x"
    assert [one.name for one in (tmp_path / "folder").iterdir()] == ["file"]


def test_a_link_that_leads_back_to_itself_is_said(tmp_path: Path) -> None:
    """By a traceback, and by `bench` after the first size had been measured."""
    link = tmp_path / "link"
    link.symlink_to("link")
    for refuse in (check_place, require_ledger, lambda path: write_whole(path, "x")):
        with pytest.raises(UsageError, match="link: a link that leads back to itself; expected one to a file"):
            refuse(link)
    assert list(tmp_path.iterdir()) == [link] and link.is_symlink()


def test_a_benchmark_says_before_it_measures_that_its_link_names_no_place(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "none" / "file")
    with pytest.raises(UsageError, match="there is no such folder; expected one to write it into"):
        require_ledger(link)
    require_ledger(tmp_path / "new" / "file")


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        write_whole(tmp_path / "none" / "file", "x")


def test_no_folder_is_made_where_a_file_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    check_folder(tmp_path / "a" / "b")
    for place in (file, file / "below"):
        with pytest.raises(UsageError, match="file is no folder; expected one"):
            check_folder(place)


def test_a_file_where_states_are_kept_sets_no_device_aside(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match="no folder can be there"):
        Ward(file / "quarantine").refusal(torch.device("cpu"))


def test_a_file_that_was_there_stays_as_private_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "x")
    assert path.stat().st_mode & 0o777 == 0o644
    for mode in (0o600, 0o664):
        path.chmod(mode)
        write_whole(path, "y")
        assert path.stat().st_mode & 0o777 == mode
