"""What a run has still to judge, when it is called again."""

import json
from pathlib import Path

import pytest
from solutions import PROBLEMS, write
from typer.testing import CliRunner
from verdicts import ENVIRONMENT, SETTINGS
from verdicts import judged as made_up

from kernelyard.campaign.candidates import find
from kernelyard.campaign.ledger import Ledger
from kernelyard.campaign.records import Foreign, Judged, Key
from kernelyard.cli.main import build
from kernelyard.cli.run import _is_missing, _left
from kernelyard.core.verdict import Status
from kernelyard.suites.sources import folder


class Again:
    """A run of two solutions to a suite whose problem can be changed."""

    def __init__(self, path: Path) -> None:
        self.problems, self.run = path / "problems", path / "run"
        write(self.problems, self.run)
        for file in self.run.glob("level_0_problem_*_sample_*"):
            if file.name.partition("sample_")[2][:2] != "0_":
                file.unlink()
        self.keys = [Key(0, 1, 0), Key(0, 2, 0)]
        self.ledger = Ledger(self.run, create=True)
        self.ledger.begin(folder(self.problems), SETTINGS, ENVIRONMENT)

    def left(self, *retry: str, again: bool = False) -> list[Key]:
        suite = folder(self.problems)
        return [one.key for one in _left(self.ledger, suite, find(self.run, suite), retry, again=again)]

    def verdict(self, key: Key, status: Status = Status.CRASHED) -> Judged:
        """On what both files say now."""
        suite = folder(self.problems)
        (solution,) = (one.source.sha256 for one in find(self.run, suite).candidates if one.key == key)
        entry = suite.entry(key.level, key.problem)
        assert entry is not None
        return made_up(key, status, solution=solution, problem=entry.source.sha256)


@pytest.fixture
def again(tmp_path: Path):
    made = Again(tmp_path)
    with made.ledger:
        yield made


def test_what_has_its_verdict_is_not_judged_again_but_by_name(again: Again) -> None:
    assert again.left() == again.keys
    again.ledger.finish(again.verdict(again.keys[0], Status.TIMEOUT))
    assert again.left() == again.left("infra_error") == again.keys[1:]
    assert again.left("timeout") == again.keys


def test_on_another_text_it_is_and_on_the_old_one_the_verdict_is_there_again(again: Again) -> None:
    right = again.verdict(again.keys[0])
    again.ledger.finish(right)
    again.ledger.finish(again.verdict(again.keys[1]))
    assert again.left() == []
    problem = again.problems / "1_Softmax.py"
    problem.write_text(PROBLEMS[problem.name] + "# another text\n")
    assert again.left() == again.keys[:1]
    assert again.ledger.judged()[0] == right, "it counts until there is another in its place"
    again.ledger.finish(again.verdict(again.keys[0], Status.TIMEOUT))
    assert again.left() == [] and again.ledger.judged()[0] != right
    problem.write_text(PROBLEMS[problem.name])
    assert again.left() == [] and again.ledger.judged()[0] == right


def test_what_kernelbench_judged_is_judged_again_where_that_is_asked_for(again: Again) -> None:
    again.ledger.take_over([Foreign(level=0, problem=1, sample=0, outcome={"compiled": True})])
    assert again.left() == again.keys[1:]
    assert again.left(again=True) == again.keys


def test_what_kernelbench_writes_while_a_run_is_under_way_is_kept(
    again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"sample_id": 7, "compiled": True, "correctness": True, "metadata": {}, "runtime": 1.0, "runtime_stats": {}}
    results = again.run / "eval_results.json"

    class Meanwhile:
        unfit = ()

        def __init__(self, *_: object, **__: object) -> None: ...

        def run(self) -> None:
            results.write_text(json.dumps({"1": [entry], "2": [entry]}))

    results.write_text(json.dumps({"1": [entry]}))
    monkeypatch.setattr("kernelyard.cli.run.Pipeline", Meanwhile)
    arguments = ["run", str(again.run), "--suite", str(again.problems), "--device", "cpu", "--rounds", "3"]
    done = CliRunner().invoke(build("run"), arguments)
    assert [one["sample_id"] for one in json.loads(results.read_text())["2"]] == [7], done.output


@pytest.mark.parametrize("changed", [{}, {"solution": "older"}, {"problem": "older"}])
def test_a_verdict_that_another_process_came_to_on_another_text_is_missing(
    again: Again, changed: dict[str, str]
) -> None:
    suite = folder(again.problems)
    candidate = find(again.run, suite).candidates[0]
    assert _is_missing(again.ledger, suite, candidate, ())
    assert not _is_missing(again.ledger, suite, candidate, again.keys), "KernelBench has an outcome of it"
    right = again.verdict(candidate.key).verdict
    hashes = {"solution": right.solution_sha256, "problem": right.problem_sha256}
    again.ledger.finish(made_up(candidate.key, **{**hashes, **changed}))
    assert _is_missing(again.ledger, suite, candidate, ()) is bool(changed)
