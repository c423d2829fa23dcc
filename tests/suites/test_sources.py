"""Where suites come from, and what a wrong choice of problems is told."""

import ast
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from made_up_suite import LINEAR, NUMBERS, checkout
from typer.testing import CliRunner

from kernelyard import ops
from kernelyard.cli.main import joined_source
from kernelyard.core.errors import UsageError
from kernelyard.core.problem import Source
from kernelyard.core.regular_file import read_at_most
from kernelyard.suites.kernelbench import EXPECTED, load_problem, read_solution, read_source
from kernelyard.suites.selection import Selection, numbers, with_selection
from kernelyard.suites.sources import spans
from kernelyard.suites.suite import Entry, Suite


def loaded(**chosen: Any) -> Suite:
    return Selection(**chosen).load("float32", "cpu")


def keys(suite: Suite) -> list[tuple[int, int]]:
    return [(entry.level, entry.number) for entry in suite.entries]


def test_a_seed_draws_what_it_draws_in_torch(tmp_path: Path, device: torch.device) -> None:
    """A worker seeds torch whole before it makes the solution's weights, which are the reference's by that alone."""
    (tmp_path / "drawn.py").write_text("""
import torch
class Model(torch.nn.Linear):
    pass
def get_inputs():
    return [torch.rand(4, 3)]
def get_init_inputs():
    return [3, 2]
""")
    problem = load_problem(tmp_path / "drawn.py")
    made, model = problem.make_inputs(7, torch.float32, device), problem.make_model([3, 2], 7, torch.float32, device)
    torch.manual_seed(7)
    assert torch.equal(made[0], torch.rand(4, 3, device=device))
    torch.manual_seed(7)
    assert torch.equal(model.weight, torch.nn.Linear(3, 2).weight.to(device))


def test_a_checkout_is_given_by_its_root_or_by_the_folder_of_its_levels(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    whole = loaded(source=str(root))
    assert keys(whole) == [(level, number) for level, chosen in NUMBERS.items() for number in chosen]
    assert whole.entries[2].name == "10_Linear_1.py"
    assert loaded(source=str(root / "KernelBench")).sha256 == whole.sha256
    model = whole.entries[1].load().make_model([16, 32], 0, torch.float32, torch.device("cpu"))
    assert model.linear.in_features == 16


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"level": ["3"]}, [(3, 1), (3, 2), (3, 10)]),
        ({"level": ["1", "4"], "ids": ["1"]}, [(1, 1), (4, 1)]),
        ({"level": ["1-2"], "ids": ["10", " 2-4"]}, [(1, 2), (1, 10), (2, 2), (2, 3), (2, 4), (2, 10)]),
        ({"representative": True}, [(1, 1), (2, 1), (2, 2), (3, 1)]),
        ({"representative": True, "ids": ["2"]}, [(2, 2)]),
    ],
)
def test_levels_ids_and_ranges_choose(chosen: dict[str, Any], expected: list[tuple[int, int]], tmp_path: Path) -> None:
    assert keys(loaded(source=str(checkout(tmp_path)), **chosen)) == expected


def test_the_representative_subset_is_of_so_many_problems_of_three_levels(tmp_path: Path) -> None:
    """Of a checkout whose numbers have no gaps. With their sums no number is another's by mistake."""
    for level, count in {1: 100, 2: 100, 3: 50, 4: 20}.items():
        (folder := tmp_path / f"level{level}").mkdir()
        for number in range(1, count + 1):
            (folder / f"{number}_a.py").touch()
    found: dict[int, list[int]] = {}
    for level, number in keys(loaded(source=str(tmp_path), representative=True)):
        found.setdefault(level, []).append(number)
    assert {level: (len(chosen), sum(chosen)) for level, chosen in found.items()} == {
        1: (18, 784),
        2: (8, 156),
        3: (9, 180),
    }


@pytest.mark.skipif("KERNELYARD_KERNELBENCH" not in os.environ, reason="KERNELYARD_KERNELBENCH names no checkout")
def test_the_representative_subset_is_kernelbenchs() -> None:
    """As its dataset.py has it, by numbers: of the names there one is not the file's."""
    root = Path(os.environ["KERNELYARD_KERNELBENCH"])
    theirs: dict[str, Any] = {}
    for node in ast.parse((root / "src/kernelbench/dataset.py").read_text()).body:
        if isinstance(node, ast.Assign) and "REPRESENTATIVE_IDS" in ast.unparse(node.targets[0]):
            theirs[ast.unparse(node.targets[0])] = ast.literal_eval(node.value)
    expected = [(level, number) for level in (1, 2, 3) for number in theirs[f"LEVEL{level}_REPRESENTATIVE_IDS"]]
    assert keys(loaded(source=str(root), representative=True)) == expected


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({}, "--suite kernelbench needs --source local PATH"),
        ({"source": "{root}/nowhere"}, "nowhere: no such folder; expected a checkout of KernelBench"),
        ({"source": "{root}/empty"}, "empty: no level1 in this folder"),
        ({"source": "{root}", "level": ["5"]}, "unknown level 5; expected 1-4"),
        ({"source": "{root}", "level": ["1-"]}, "--level '1-': expected numbers and ranges, like 1,3,10-20"),
        (
            {"source": "{root}", "level": ["1", "3"], "ids": ["2", "4"]},
            "kernelbench level 1, 3 has no problem 4; expected 1-2, 10",
        ),
        ({"source": "{root}", "ids": ["3-1"]}, "--ids '3-1'"),
        ({"source": "{root}", "ids": ["1-99999999"]}, "--ids '1-99999999'"),
        ({"source": "{root}", "ids": ["9" * 5000]}, "expected numbers and ranges"),
        ({"source": "{root}", "level": ["4"], "representative": True}, "the representative subset is of"),
        ({"source": "{root}", "level": ["1", "4"], "representative": True}, "nothing here of level 4 is in it"),
        (
            {"source": "{root}/twice", "level": ["1"]},
            "2_a copy.py and {root}/twice/level1/2_a.py are both level 1 problem 2",
        ),
        ({"source": "{root}/unnumbered", "level": ["1"]}, "level1: no .py whose name begins with a number"),
        ({"suite": "{root}/hidden"}, "hidden: only names that begin with _"),
        ({"suite": "{root}/hidden/_a.py"}, "_a.py: only names that begin with _"),
        ({"suite": "kernlbench"}, "unknown suite 'kernlbench': did you mean 'kernelbench'?"),
        ({"suite": "{root}/nowhere"}, "nowhere: no such folder; expected kernelbench, library or a folder"),
        ({"suite": "{root}/empty"}, "empty: no .py in this folder"),
        ({"suite": "library", "level": ["1"]}, "are for --suite kernelbench, not library"),
        ({"suite": "library", "ids": ["99"]}, "library has no problem 99; expected 1-"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_choice_is_one_line(chosen: dict[str, Any], said: str, tmp_path: Path) -> None:
    checkout(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("twice/level1/2_a.py", "twice/level1/2_a copy.py", "unnumbered/level1/a.py", "hidden/_a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    given = {key: value.format(root=tmp_path) if isinstance(value, str) else value for key, value in chosen.items()}
    with pytest.raises(UsageError) as told:
        loaded(**given)
    assert said.format(root=tmp_path) in str(told.value)
    assert "\n" not in str(told.value)


def test_the_hash_is_of_the_texts_and_of_their_numbers(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    before = loaded(source=str(root)).sha256
    assert loaded(source=str(root), level=["1"]).sha256 != before
    (root / "KernelBench/level1/1_Linear_1.py").write_text(LINEAR.format(width=9))
    assert loaded(source=str(root)).sha256 != before


def test_a_folder_is_numbered_by_its_names_and_no_further_file_renumbers_it(tmp_path: Path) -> None:
    """Or a run that goes on would judge solutions against other problems than before."""
    for name in ("7_b.py", "3_a.py", "__init__.py"):
        (tmp_path / name).write_text(LINEAR.format(width=8))
    suite = loaded(suite=str(tmp_path))
    assert [(entry.number, entry.name) for entry in suite.entries] == [(3, "3_a.py"), (7, "7_b.py")]
    for name, message in (
        ("7_c.py", "7_b.py and 7_c.py begin with the same number"),
        ("extra.py", "extra.py begins with no number from 1 on, as 3_a.py does"),
        ("0_d.py", "0_d.py begins with no number from 1 on"),
    ):
        (tmp_path / name).write_text(LINEAR.format(width=8))
        with pytest.raises(UsageError, match=message):
            loaded(suite=str(tmp_path))
        (tmp_path / name).unlink()


def test_a_folder_without_numbers_is_numbered_by_position(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "_c.py"):
        (tmp_path / name).write_text(LINEAR.format(width=8))
    suite = loaded(suite=str(tmp_path))
    assert [(entry.number, entry.name) for entry in suite.entries] == [(1, "a.py"), (2, "b.py")]


def test_the_librarys_problems_are_texts_that_a_worker_can_run() -> None:
    suite = loaded(suite="library")
    assert [entry.name for entry in suite.entries] == [f"{name}.py" for name in sorted(ops.operator_names())]
    problem = suite.entries[-1].load()
    exact = problem.make_inputs(1, torch.float64, torch.device("cpu"))
    rounded = [value.float() if torch.is_tensor(value) and value.dtype is torch.float64 else value for value in exact]
    model = problem.make_model([], 0, torch.float32, torch.device("cpu"))
    torch.testing.assert_close(model(*rounded), model(*exact).float())
    assert Selection(suite="library").load("bfloat16", "cpu").sha256 != suite.sha256


def test_numbers_and_spans_are_each_others_inverse() -> None:
    assert numbers(["3", "1", "2", "7-9", "8"], "--ids") == (1, 2, 3, 7, 8, 9)
    assert spans([9, 8, 7, 1, 2, 3]) == "1-3, 7-9"


def test_every_field_of_a_selection_is_an_option_of_the_verb() -> None:
    application = typer.Typer()
    got: list[tuple[str, Selection, bool]] = []

    @application.command()
    @with_selection
    def verb(folder: str, selection: Selection, json: bool = False) -> None:
        """A verb."""
        got.append((folder, selection, json))

    options = ["run", "--source", "x", "--level", "1", "--ids", "2", "--representative", "--json"]
    result = CliRunner().invoke(application, options)
    assert result.exit_code == 0, result.output
    assert got == [("run", Selection(source="x", level=["1"], ids=["2"], representative=True), True)]


def test_source_local_takes_the_word_after_it(tmp_path: Path) -> None:
    assert joined_source(["list", "--source", "local", "a", "--json"]) == ["list", "--source", "a", "--json"]
    assert joined_source(["list", "--source=local", "a"]) == ["list", "--source=a"]
    for words in (["--source", "huggingface"], ["--source=huggingface"], ["--source", str(tmp_path)], ["run", "locl"]):
        assert joined_source(words) == words
    for words in (["--source", "local"], ["--source", "local", "--json"]):
        with pytest.raises(UsageError, match="--source local needs the path"):
            joined_source(words)


def test_an_operator_that_is_not_there() -> None:
    from kernelyard.suites.operators import operator_source

    assert isinstance(operator_source("softmax", "float32", "cpu"), Source)
    with pytest.raises(UsageError, match="unknown operator"):
        operator_source("sofmax", "float32", "cpu")


def test_a_problem_file_is_a_suite_of_one(tmp_path: Path) -> None:
    (tmp_path / "7_a.py").write_text(LINEAR.format(width=8))
    assert keys(loaded(suite=str(tmp_path / "7_a.py"))) == [(0, 7)]


def test_a_source_is_the_same_text_whatever_its_line_ends(tmp_path: Path) -> None:
    (unix := tmp_path / "unix.py").write_bytes(b"x = 1\ny = 2\n")
    (other := tmp_path / "other.py").write_bytes(b"x = 1\r\ny = 2\r\n")
    assert read_source(unix, "problem", EXPECTED).sha256 == read_source(other, "problem", EXPECTED).sha256


def test_a_problem_may_begin_with_a_byte_order_mark_and_keeps_its_hash(tmp_path: Path) -> None:
    (path := tmp_path / "1_a.py").write_text(LINEAR.format(width=8), encoding="utf-8-sig")
    problem = load_problem(path)
    assert problem.make_model([8, 32], 0, torch.float32, torch.device("cpu")).linear.in_features == 8
    assert problem.source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_solution_may_begin_with_a_byte_order_mark_and_keeps_its_hash(tmp_path: Path) -> None:
    """As editors on Windows write them; a worker and the linter took it."""
    (path := tmp_path / "mine.py").write_text("class ModelNew: ...\n", encoding="utf-8-sig")
    assert read_solution(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_problem_is_found_without_a_walk_through_the_suite(tmp_path: Path) -> None:
    class Walked(tuple[Entry, ...]):
        walks = 0

        def __iter__(self) -> Iterator[Entry]:
            Walked.walks += 1
            return super().__iter__()

    whole = loaded(source=str(checkout(tmp_path)))
    suite = Suite(whole.name, Walked(whole.entries))
    assert suite.entry(1, 7) is None
    before = Walked.walks
    assert [suite.entry(*key) for key in keys(whole)] == list(whole.entries)
    assert Walked.walks == before


def test_no_more_is_read_of_a_file_than_was_asked_for(tmp_path: Path) -> None:
    with (endless := tmp_path / "endless.py").open("wb") as file:
        file.truncate(1 << 40)
    assert read_at_most(endless, 10) == bytes(10)
    with pytest.raises(UsageError, match="over 4 MiB"):
        read_source(endless, "problem", EXPECTED)
