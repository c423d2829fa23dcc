"""A run that was killed, or is under way, analysed: what it has not come to is no wrong answer."""

import hashlib
import json
from pathlib import Path

import pytest
from made_up_runs import judged, name_of, run_folder, suite_of

from kernelyard.campaign.analysis import P_VALUES
from kernelyard.campaign.comparison import compare
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.runs import Run, analyze, answers_of, read_run, side_of

SUITE = suite_of(1, 2, 3, 4)


def solution(run: Path, problem: int, sample: int = 0, level: int = 1) -> None:
    (run / f"level_{level}_problem_{problem}_sample_{sample}_kernel.py").touch()


def killed(tmp_path: Path) -> Path:
    """Two of three samples of problem 1 have a verdict; 2 has two that wait, by either layout; 3 has one; 4 none."""
    run = run_folder(tmp_path / "run", [judged(1, 3.0), judged(1, sample=1), judged(3, 2.0)])
    for problem, sample in ((1, 0), (1, 1), (1, 2), (2, 0), (3, 0)):
        solution(run, problem, sample)
    own = run / name_of(2).removesuffix(".py")
    own.mkdir()
    (own / "1.py").touch()
    return run


def test_what_waits_for_a_verdict_is_counted_and_in_no_share(tmp_path: Path) -> None:
    run = read_run(killed(tmp_path)).on(SUITE)
    found, answers, _ = analyze(run, Opponents(), SUITE, {})
    assert [each.number for each in answers] == [1, 3, 4]
    assert (found.groups[0].problems, found.groups[0].unanswered) == (3, 1)
    assert found.groups[0].against[0].fast["0"].count == pytest.approx(1.5)
    said = "3 solutions have no verdict yet: in no share, and with that 1 problem that has no other"
    assert found.notes[0] == said


def test_without_a_suite_they_are_those_of_kernelbenchs_names(tmp_path: Path) -> None:
    run = killed(tmp_path)
    solution(run, 1, level=2)
    assert analyze(read_run(run), Opponents(), None, {})[0].notes[0].startswith("3 solutions have no verdict yet")
    assert len(read_run(run).of([1]).waiting) == 2


def test_a_finished_run_says_nothing_of_it(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [judged(1, 3.0)])
    solution(run, 1)
    solution(run, 9)
    assert read_run(run).on(SUITE).waiting == ()


def test_a_run_of_kernelbenchs_that_is_under_way(tmp_path: Path) -> None:
    entry = {"sample_id": 0, "compiled": True, "correctness": True, "metadata": {}, "runtime": 1.0}
    (tmp_path / "eval_results.json").write_text(json.dumps({"1": [entry]}))
    for problem in (1, 2):
        solution(tmp_path, problem)
    found, answers, _ = analyze(read_run(tmp_path).on(SUITE), Opponents(), SUITE, {})
    assert [each.number for each in answers] == [1, 3, 4]
    assert found.notes[0].startswith("1 solution has no verdict yet")


def test_a_comparison_does_not_take_them_for_wrong(tmp_path: Path) -> None:
    whole = run_folder(tmp_path / "whole", [judged(problem, 3.0) for problem in (1, 2, 3)])
    runs: list[Run] = [read_run(folder).on(SUITE) for folder in (whole, killed(tmp_path))]
    sides = [side_of(run, answers_of(run, Opponents(), SUITE)) for run in runs]
    assert compare(*sides, P_VALUES).left_out == {f"level 1 problem 2 {name_of(2)}": f"not in {tmp_path / 'run'}"}


def test_a_verdict_of_an_earlier_text_of_its_solution_is_said(tmp_path: Path) -> None:
    texts = {problem: f"# solution {problem}" for problem in (1, 2, 3)}
    verdicts = [judged(n, 3.0, solution_sha256=hashlib.sha256(text.encode()).hexdigest()) for n, text in texts.items()]
    run = run_folder(tmp_path / "run", verdicts)
    for problem, text in texts.items():
        (run / f"level_1_problem_{problem}_sample_0_kernel.py").write_text(text)
    assert not [note for note in analyze(read_run(run), Opponents(), None, {})[0].notes if "no longer" in note]
    (run / "level_1_problem_1_sample_0_kernel.py").write_text("# another")
    (run / "level_1_problem_2_sample_0_kernel.py").unlink()
    (run / "level_1_problem_2_sample_0_kernel.py").symlink_to("nowhere")
    (run / "level_1_problem_3_sample_0_kernel.py").unlink()
    (note,) = [note for note in analyze(read_run(run), Opponents(), None, {})[0].notes if "no longer" in note]
    assert note.startswith("2 solutions are no longer as they were judged")
