"""What a run's folder holds: one file that is none stops no other."""

import os
import re
from pathlib import Path

import pytest
from made_up_runs import suite_of

from kernelyard.campaign.candidates import Found, find
from kernelyard.campaign.records import Key
from kernelyard.core.errors import UsageError


def test_a_file_that_cannot_be_read_is_said_and_the_others_are_found(tmp_path: Path) -> None:
    (tmp_path / "level_1_problem_1_sample_0_kernel.py").write_text("a solution")
    (tmp_path / "level_1_problem_1_sample_1_kernel.py").symlink_to("nowhere")
    (tmp_path / "level_1_problem_2_sample_0_kernel.py").mkdir()
    os.mkfifo(tmp_path / "level_1_problem_2_sample_1_kernel.py")
    (tmp_path / "level_1_problem_2_sample_2_kernel.py").symlink_to("/dev/zero")
    (tmp_path / "level_1_problem_2_sample_3_kernel.py").write_bytes(b"# \xe9, which Python refuses")
    found = find(tmp_path, suite_of(1, 2))
    assert [candidate.key for candidate in found.candidates] == [Key(1, 1, 0)]
    assert len(found.unreadable) == 5 and all("cannot be read" in why for why in found.unreadable)


def test_a_sample_number_that_no_ledger_holds_is_said_and_the_others_are_found(tmp_path: Path) -> None:
    """A file named by the time of its making, to the microsecond, ended the run with the ledger's blame."""
    (tmp_path / "level_1_problem_1_sample_9223372036854775807_kernel.py").write_text("the last one")
    (tmp_path / "level_1_problem_1_sample_20260101120000123456_kernel.py").write_text("a solution")
    (tmp_path / "1_Made_Up").mkdir()
    (tmp_path / "1_Made_Up" / "9223372036854775808.py").write_text("a solution")
    found = find(tmp_path, suite_of(1))
    assert [candidate.key for candidate in found.candidates] == [Key(1, 1, 2**63 - 1)]
    assert len(found.unreadable) == 2 and all("expected 9223372036854775807 at most" in why for why in found.unreadable)


@pytest.mark.parametrize("name", ["level_1_problem_{}_sample_0_kernel.py", "{}_Made_Up/0.py"])
def test_what_was_not_chosen_is_counted_by_either_layout(tmp_path: Path, name: str) -> None:
    for number in (1, 2):
        path = tmp_path / name.format(number)
        path.parent.mkdir(exist_ok=True)
        path.write_text("a solution")
    found = find(tmp_path, suite_of(1))
    assert [candidate.key for candidate in found.candidates] == [Key(1, 1, 0)] and found.unwanted == (name.format(2),)
    assert found.said_unwanted == f"1 is for a problem that was not chosen: {name.format(2)}"
    with pytest.raises(UsageError, match=re.escape(f"(2 are for problems that were not chosen: {name.format(1)}, ")):
        find(tmp_path, suite_of(3))


def test_of_many_that_were_not_chosen_three_are_named() -> None:
    said = Found((), tuple(f"{number}.py" for number in range(5)), ()).said_unwanted
    assert said == "5 are for problems that were not chosen: 0.py, 1.py, 2.py and 2 more"
    assert Found((), (), ()).said_unwanted == ""


def test_a_name_that_is_nearly_a_solutions_is_said(tmp_path: Path) -> None:
    """Beside a good one it was passed over without a word."""
    for name in ("level_1_problem_1_sample_0_kernel.py", "level_1_problem_1_sample_1.py", "level_1_prompt.txt", "x.py"):
        (tmp_path / name).write_text("a solution")
    assert find(tmp_path, suite_of(1)).misnamed == ("level_1_problem_1_sample_1.py",)


def test_a_folder_of_nothing_that_can_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "level_1_problem_1_sample_1_kernel.py").symlink_to("nowhere")
    with pytest.raises(UsageError, match="cannot be read"):
        find(tmp_path, suite_of(1))


def test_a_link_to_what_is_no_python_file_is_not_read(tmp_path: Path) -> None:
    """Its text would stand in the report."""
    (secret := tmp_path / "secret").write_text("a password")
    (elsewhere := tmp_path / "mine.py").write_text("class ModelNew: ...")
    (run := tmp_path / "run").mkdir()
    for sample, target in enumerate((secret, elsewhere)):
        (run / f"level_1_problem_1_sample_{sample}_kernel.py").symlink_to(target)
    found = find(run, suite_of(1))
    assert [candidate.source.text for candidate in found.candidates] == ["class ModelNew: ..."]
    assert len(found.unreadable) == 1 and "a link to what is no .py" in found.unreadable[0]
