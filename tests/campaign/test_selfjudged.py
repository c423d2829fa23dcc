"""References as solutions to their own problems: written, judged, and named where they do not pass and tie."""

import hashlib
from pathlib import Path

import pytest
from made_up_runs import judged, run_folder, suite_of
from solutions import PROBLEMS
from typer.testing import CliRunner

from kernelyard.campaign.candidates import find
from kernelyard.campaign.records import Judged
from kernelyard.campaign.selfjudged import self_judged, write_references
from kernelyard.cli.main import build
from kernelyard.core.errors import UsageError
from kernelyard.core.problem import as_solution
from kernelyard.core.verdict import Flag, KernelRun, LaunchEvidence, Phase, Status, Timing
from kernelyard.report.selfjudged import self_judged_table
from kernelyard.suites.sources import folder
from kernelyard.suites.suite import Suite

SUITE = suite_of(1, 2, 3, 4)


def of_itself(suite: Suite, number: int, speedup: float | None = None, **changes) -> Judged:
    entry = next(entry for entry in suite.entries if entry.number == number)
    solution = hashlib.sha256(as_solution(entry.source).encode()).hexdigest()
    given = {"level": entry.level, "solution_sha256": solution, "problem_sha256": entry.source.sha256}
    return judged(number, speedup, **{**given, **changes})


def invalid(suite: Suite, number: int) -> Judged:
    message = "the reference | answers unlike itself\nat <b>"
    return of_itself(suite, number, status=Status.INVALID_PROBLEM, phase=Phase.CHECK, message=message)


def test_each_level_is_counted_and_only_what_fails_is_named() -> None:
    verdicts = [of_itself(SUITE, 1, 1.0), of_itself(SUITE, 2, 1.3), invalid(SUITE, 3)]
    table = self_judged_table(SUITE, self_judged(SUITE, verdicts))
    assert table.startswith("On a CPU · torch 2 · no triton · kernelyard 0 · ")
    assert f"float32, eval mode, policy training; made up, suite {SUITE.sha256[:16]}." in table
    assert "| 1 | 4 | 1 | 1 | 1 | 1 | 0.4 %, 0.4 % |" in table
    assert "1/1_Made_Up" not in table
    assert "| 1/2_Made_Up | passed, faster | 1.30x (1.29-1.31) | 0.4 % | 769 us | - |  |" in table
    assert "| 1/3_Made_Up | invalid_problem | - | - | - | - | the reference / answers unlike itself |" in table
    assert "| 1/4_Made_Up | no verdict | - | - | - | - |  |" in table
    ran = LaunchEvidence(kernels=(KernelRun(name="gemm", count=2), KernelRun(name="add", count=1)), own=())
    flags = (Flag(name="no_own_kernel", evidence="ran: gemm"), Flag(name="bits_differ", evidence="so they do"))
    noisy = of_itself(SUITE, 4, 1.0, noise=0.5, decision="inconclusive", evidence=ran, flags=flags)
    table = self_judged_table(SUITE, self_judged(SUITE, [*verdicts, noisy]))
    line = "| 1/4_Made_Up | passed, inconclusive | 1.00x (0.99-1.01) | 50.0 % | 1.00 ms | 3 |"
    assert f"{line} too noisy to tell a tie; bits_differ: so they do |" in table
    times = Timing(samples_ms=(1.0, 1.0, 1.0, 2.0, 2.0), timer="cuda_event", cache="cold")
    table = self_judged_table(SUITE, self_judged(SUITE, [*verdicts, of_itself(SUITE, 4, 1.3, time=times)]))
    assert "| its calls take 1.00 ms to 2.00 ms (20th to 80th percentile) |" in table
    alone = suite_of(1)
    assert self_judged_table(alone, self_judged(alone, verdicts)).endswith("All of them passed and are a tie.")


def test_every_commit_and_device_is_named_with_how_many_it_judged() -> None:
    """The head was the last verdict's: of 250 it named a commit that had judged eight."""

    def by(number: int, commit: str, date: str) -> Judged:
        where = of_itself(SUITE, number, 1.0).verdict.environment.model_copy(update={"commit": commit, "date": date})
        return of_itself(SUITE, number, 1.0, environment=where)

    verdicts = [by(1, "aaaa", "2026-01-02T08:00:00+00:00"), by(2, "bbbb", "2026-01-02T09:00:00+00:00")]
    verdicts.append(by(3, "bbbb", "2026-01-04T09:00:00+00:00"))
    table = self_judged_table(SUITE, self_judged(SUITE, verdicts))
    assert table.startswith(f"In float32, eval mode, policy training; made up, suite {SUITE.sha256[:16]}:\n\n")
    assert "- 2 problems on a CPU · torch 2 · no triton · kernelyard 0 (bbbb) · 2026-01-02 to 2026-01-04\n" in table
    assert "- 1 problem on a CPU · torch 2 · no triton · kernelyard 0 (aaaa) · 2026-01-02\n" in table


def test_a_verdict_on_anything_but_the_reference_is_refused() -> None:
    with pytest.raises(UsageError, match=r"level_1_problem_2_sample_0 is not the reference of 2_Made_Up.py"):
        self_judged(SUITE, [of_itself(SUITE, 1, 1.0), judged(2, 1.0)])


def test_references_are_solutions_that_run_finds_and_no_other_is_overwritten(tmp_path: Path) -> None:
    problems = tmp_path / "problems"
    problems.mkdir()
    for name, text in PROBLEMS.items():
        (problems / name).write_text(text.rstrip("\n"))
    suite, run = folder(problems), tmp_path / "run"
    paths = write_references(suite, run)
    assert [candidate.source.path for candidate in find(run, suite).candidates] == paths
    context: dict = {}
    exec(paths[1].read_text(), context)
    assert context["ModelNew"] is context["Model"]
    write_references(suite, run)
    paths[0].unlink()
    paths[1].write_text("class ModelNew: ...")
    with pytest.raises(UsageError, match="another solution"):
        write_references(suite, run)
    assert [path.exists() for path in paths] == [False, True]


def test_the_verbs_write_the_folder_and_the_table(tmp_path: Path) -> None:
    problems, run, page = tmp_path / "problems", tmp_path / "run", tmp_path / "page.md"
    problems.mkdir()
    for name, text in PROBLEMS.items():
        (problems / name).write_text(text)
    page.write_text("Before.\n<!-- selfjudged:cpu:begin -->\n<!-- selfjudged:cpu:end -->\nAfter.\n")
    verb = CliRunner()
    done = verb.invoke(build("problems"), ["problems", "references", str(run), "--suite", str(problems)])
    assert done.exit_code == 0 and "2 references" in done.stdout
    suite = folder(problems)
    run_folder(run, [of_itself(suite, 1, 1.0), invalid(suite, 2)])
    given = ["analyze", str(run), "--suite", str(problems), "--table"]
    done = verb.invoke(build("analyze"), [*given, str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert text.startswith("Before.\n<!--") and text.endswith("-->\nAfter.\n")
    assert "| 0 | 2 | 1 | 0 | 1 | 0 |" in text and "2_Linear | invalid_problem" in text

    # Without the suite, or without the markers, nothing is written.
    (run / "analysis.json").unlink()
    bare = tmp_path / "bare.md"
    bare.write_text("nothing")
    for words in ([*given, str(bare)], ["analyze", str(run), "--table", str(page)]):
        assert isinstance(verb.invoke(build("analyze"), words).exception, UsageError)
    assert not (run / "analysis.json").exists()
