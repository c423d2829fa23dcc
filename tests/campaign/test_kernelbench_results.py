"""The numbers of what KernelBench's files hold: results of its own, and those that a run of ours was exported to."""

import io
import json
import math
import re

import pytest
from html_page import Page
from made_up_runs import baseline, baselines, judged, run_folder, suite_of
from rich.console import Console

from kernelyard.campaign.analysis import Analysis
from kernelyard.campaign.baselines import FILES, LEDGER, Variant
from kernelyard.campaign.kernelbench_files import RESULTS, export
from kernelyard.campaign.ledger import FILE_NAME, Ledger
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.outcomes import kernelbench_status
from kernelyard.campaign.records import Foreign
from kernelyard.campaign.runs import analyze, read_run
from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Status
from kernelyard.report.campaign import analysis_text, score_line
from kernelyard.report.campaign_html import render
from kernelyard.suites.sources import subset


def theirs(tmp_path, hardware: str = "a CPU") -> None:
    run = tmp_path / "run"
    run.mkdir(exist_ok=True)
    (run / "level_1_problem_1_sample_0_kernel.py").touch()
    shape = {"correctness_issue": "Output shape mismatch: Expected [1], got [2]", "hardware": "a CPU"}
    entries = {
        "1": [{"sample_id": 0, "compiled": True, "correctness": True, "metadata": {}, "runtime": 0.5}],
        "2": [{"sample_id": 0, "compiled": True, "correctness": False, "metadata": shape, "runtime": -1.0}],
        "3": [{"sample_id": 0, "compiled": True, "correctness": True, "metadata": {}, "runtime": -1.0}],
    }
    (run / RESULTS).write_text(json.dumps(entries))
    folder = tmp_path / "timing"
    folder.mkdir(exist_ok=True)
    for variant, milliseconds in ((Variant.EAGER, 1.0), (Variant.COMPILE, 0.6)):
        stats = {"mean": milliseconds, "hardware": hardware}
        text = json.dumps({"level1": {f"{number}_Made_Up.py": stats for number in (1, 2, 3, 4)}})
        (folder / FILES[variant]).write_text(text)


def test_a_run_of_kernelbench_is_analysed_by_what_it_kept(tmp_path) -> None:
    theirs(tmp_path)
    opponents = Opponents.read([tmp_path / "timing"])
    found, *_ = analyze(read_run(tmp_path / "run"), opponents, None, {}, p_values=(0.0, 1.0, 1.5))
    eager, best = found.groups[0].against
    assert {p: share.count for p, share in eager.fast.items()} == {"0": 2, "1": 1, "1.5": 1}
    assert {p: share.count for p, share in best.fast.items()} == {"0": 2, "1": 1, "1.5": 0}
    assert eager.faster is None
    assert eager.speedup.low is None
    assert [ending.status for ending in found.groups[0].endings] == ["passed", "incorrect_shape"]
    assert [score.fast_p["1.0"] for score in found.kernelbench] == [0.25, 0.25], "of the four in the baseline"
    assert [score.untimed for score in found.kernelbench] == [1, 1]


def test_of_what_kernelbench_judged_the_times_are_shown_that_its_files_hold(tmp_path) -> None:
    theirs(tmp_path)
    opponents = Opponents.read([tmp_path / "timing"])
    found, answers, _ = analyze(read_run(tmp_path / "run"), opponents, None, {})
    text = Page(render(found, answers, (), {}, {})).text
    assert "1_Made_Up.py passed 2.00x - 1.20x 1.00 ms 500 us - evidence" in text
    assert "times means: solution 500 us, baseline 1.00 ms as stored" in text
    assert "2_Made_Up.py incorrect_shape - - - 1.00 ms - - evidence" in text
    assert "3_Made_Up.py passed - - - 1.00 ms - - evidence" in text, "it was not timed"
    found, answers, _ = analyze(read_run(tmp_path / "run"), Opponents(), None, {})
    assert "passed - - - 500 us - evidence" in Page(render(found, answers, (), {}, {})).text


TEXTLESS = "stored times in KernelBench's format do not say of which text of a problem they are"


def test_stored_times_of_unknown_texts_are_said_and_what_is_hardly_to_be_believed_is_named(tmp_path) -> None:
    """KernelBench's own baseline of an H100 is older than 1/12's text: 44.7x for what is right, and no word of it."""
    theirs(tmp_path)
    stored = {f"{number}_Made_Up.py": {"mean": 12.0 * number, "hardware": "a CPU"} for number in range(1, 7)}
    (tmp_path / "timing" / FILES[Variant.EAGER]).write_text(json.dumps({"level1": stored}))
    right = {"sample_id": 0, "compiled": True, "correctness": True, "metadata": {}}
    file, opponents = tmp_path / "run" / RESULTS, Opponents.read([tmp_path / "timing"])

    def said(*runtimes: float) -> str:
        file.write_text(json.dumps({n: [{**right, "runtime": runtime}] for n, runtime in enumerate(runtimes, 1)}))
        found, *_ = analyze(read_run(tmp_path / "run", [1]), opponents, None, {})
        (note,) = [note for note in found.notes if note.startswith(TEXTLESS)]
        return note.partition("; ")[2]

    assert said(1.2, 2.4) == ""
    assert said(1.0, 3.0) == "above 10x: level 1 problem 1 (12x)"
    assert said(1, 1, 1, 1, 1, 80) == (
        "above 10x: level 1 problem 5 (60x), level 1 problem 4 (48x), level 1 problem 3 (36x) and 2 more"
    )
    found, *_ = analyze(read_run(tmp_path / "run", [1]), Opponents(), None, {})
    assert not any(note.startswith(TEXTLESS) for note in found.notes), "nothing rests on any"


def test_stored_times_of_verdicts_are_of_unknown_texts_where_no_baseline_of_ours_is_beside_them(tmp_path) -> None:
    verdicts = [judged(1, 20.0), judged(2)]
    run = run_folder(tmp_path / "run", verdicts)
    export(run, verdicts, [])
    stored = baselines(tmp_path / "timing", [baseline(number, 0.5) for number in (1, 2)])

    def said() -> list[str]:
        found, *_ = analyze(read_run(run), Opponents.read([stored]), None, {})
        return [note for note in found.notes if note.startswith(TEXTLESS)]

    assert said() == []
    (stored / LEDGER).unlink()
    assert [note.partition("; ")[2] for note in said()] == [""], "in the verdict eager was timed beside it"
    (run / RESULTS).unlink()
    assert said() == [], "nor is there a line by KernelBench's definition"


def test_problems_that_a_baseline_of_kernelbenchs_has_not_are_counted(tmp_path) -> None:
    """The row said 2 problems, and beside that a pass@1 of three."""
    theirs(tmp_path)
    for file in (tmp_path / "timing").iterdir():
        stored = json.loads(file.read_text())
        del stored["level1"]["1_Made_Up.py"]
        file.write_text(json.dumps(stored))
    run, suite = read_run(tmp_path / "run"), suite_of(1, 2, 3)
    found, *_ = analyze(run, Opponents.read([tmp_path / "timing"]), suite, {})
    whole = found.groups[0]
    assert (whole.problems, whole.pass_at["1"].of, whole.against[0].problems) == (3, 3, 2)
    assert "1 problem has no time of eager to stand against: in no fast_p" in found.notes
    found, *_ = analyze(run, Opponents(), suite, {})
    assert not any("to stand against" in note for note in found.notes), "the table has no opponent at all"


def test_every_mode_of_compile_that_kernelbench_timed_is_an_opponent(tmp_path) -> None:
    """Its script times five; the fastest was one of the two that we do not, and never looked at."""
    theirs(tmp_path)
    for mode, milliseconds in (("reduce-overhead", 0.4), ("max-autotune-no-cudagraphs", 0.5)):
        path = tmp_path / "timing" / f"baseline_time_torch_compile_inductor_{mode}.json"
        path.write_text(json.dumps({"level1": {"1_Made_Up.py": {"mean": milliseconds}}}))
    opponents = Opponents.read([tmp_path / "timing"])
    assert opponents.mean_ms(1, "1_Made_Up.py") == (1.0, 0.4)
    assert opponents.mean_ms(1, "2_Made_Up.py") == (1.0, 0.6)


def test_kernelbenchs_line_is_of_whole_levels(tmp_path) -> None:
    """Of a part it had results of problems without a name: 3 correct of 1."""
    theirs(tmp_path)
    run, opponents = read_run(tmp_path / "run"), Opponents.read([tmp_path / "timing"])
    found, *_ = analyze(run, opponents, subset(suite_of(1, 2, 3, 4), [1]), {})
    assert found.kernelbench == () and any("is of whole levels" in note for note in found.notes)
    found, *_ = analyze(run, opponents, subset(suite_of(1, 2, 3, 4), [1, 2, 3, 4]), {})
    assert [(score.correct_count, score.total_count) for score in found.kernelbench] == [(2, 4)] * 2
    # Without a suite, what the run has and the baselines do not is known of too.
    only = {"level1": {"1_Made_Up.py": {"mean": 1.0, "hardware": "a CPU"}}}
    for file in (tmp_path / "timing").iterdir():
        file.write_text(json.dumps(only))
    found, *_ = analyze(run, Opponents.read([tmp_path / "timing"]), None, {})
    assert [(score.correct_count, score.total_count, score.aligned) for score in found.kernelbench] == [(2, 3, 1)] * 2


def test_verdicts_that_came_after_the_export_are_said(tmp_path) -> None:
    """KernelBench's line is of its file, which a killed run has not written."""
    run = run_folder(tmp_path / "run", [judged(1, 2.0)])
    with Ledger(run) as ledger:
        export(run, ledger.judged(), [])
    assert read_run(run).unexported == 0
    run_folder(run, [judged(2, 2.0), judged(3, status=Status.INFRA_ERROR)])
    assert read_run(run).unexported == 1
    found, *_ = analyze(read_run(run), Opponents(), None, {})
    assert any("1 verdict is not in eval_results.json" in note for note in found.notes)
    # With a second level each has a file in a folder of its own, and the one that there is says nothing any more.
    run_folder(run, [judged(1, 2.0, level=2)])
    assert read_run(run).unexported == 3


def test_a_verdict_that_took_anothers_place_after_the_export_is_said(tmp_path) -> None:
    """On the same solution, by --retry timeout or on a changed problem: the line is still of the one before."""
    run = run_folder(tmp_path / "run", [judged(n, status=Status.TIMEOUT) for n in (1, 2)])
    with Ledger(run) as ledger:
        export(run, ledger.judged(), [])
        for now in (judged(1, 2.0), judged(2, status=Status.TIMEOUT, problem_sha256="a new text")):
            ledger.give_way(now.key)
            assert ledger.finish(now)
    assert read_run(run).unexported == 2


def test_a_run_whose_ledger_is_gone_is_still_ours(tmp_path) -> None:
    run = run_folder(tmp_path / "run", [judged(1, 2.0)])
    with Ledger(run) as ledger:
        export(run, ledger.judged(), [])
    (run / FILE_NAME).unlink()
    notes = analyze(read_run(run, [1]), Opponents(), None, {})[0].notes
    assert any("judged by kernelyard, whose kernelyard.sqlite is gone" in note for note in notes)
    assert not any("KernelBench: right by its tolerance" in note for note in notes)


def test_a_baseline_of_another_device_is_refused(tmp_path) -> None:
    theirs(tmp_path, hardware="another CPU")
    with pytest.raises(UsageError, match="is of another CPU, the run of a CPU"):
        analyze(read_run(tmp_path / "run"), Opponents.read([tmp_path / "timing"]), None, {})


def test_of_results_of_two_devices_none_is_held_against_the_others_times(tmp_path) -> None:
    """Only the first was looked at: an A100's runtime stood against an H100's baseline."""
    theirs(tmp_path)
    path = tmp_path / "run" / RESULTS
    entries = json.loads(path.read_text())
    entries["3"][0] |= {"runtime": 0.5, "metadata": {"hardware": "an A100"}}
    path.write_text(json.dumps(entries))
    run = read_run(tmp_path / "run")
    with pytest.raises(UsageError, match=r"is of a CPU, the run of an A100; expected one of the same device$"):
        analyze(run, Opponents.read([tmp_path / "timing"]), None, {})
    found, *_ = analyze(run, Opponents(), None, {})
    assert found.settings[0] == "device a CPU and an A100" and "unlike settings" in found.notes[0]


@pytest.mark.parametrize("runtime", [1e-320, 1e-30, 1e30, 1e308, math.inf, math.nan, 0.0, -1.0])
def test_a_runtime_that_is_no_time_is_none(tmp_path, runtime) -> None:
    """1e-30 beside 1 ended the analysis: the interval of two such ratios is beyond what a float holds."""
    theirs(tmp_path)
    right = {"sample_id": 0, "compiled": True, "correctness": True, "metadata": {}}
    results = {"1": [{**right, "runtime": runtime}], "2": [{**right, "runtime": 1.0}]}
    (tmp_path / "run" / "eval_results.json").write_text(json.dumps(results))
    found, *_ = analyze(read_run(tmp_path / "run"), Opponents.read([tmp_path / "timing"]), None, {})
    eager = found.groups[0].against[0]
    assert (eager.fast["0"].count, eager.untimed, eager.speedup.of) == (2, 1, 1)
    assert math.isfinite(eager.speedup.value) and Analysis.model_validate_json(found.model_dump_json()) == found


def test_verdicts_and_their_results_are_never_one_number(tmp_path) -> None:
    theirs(tmp_path)
    run_folder(tmp_path / "run", [judged(4, 3.0)])
    with Ledger(tmp_path / "run") as ledger:
        ledger.take_over([Foreign(level=1, problem=2, sample=0, outcome={})])
    found, *_ = analyze(read_run(tmp_path / "run"), Opponents.read([tmp_path / "timing"]), None, {})
    assert found.groups[0].problems == 1
    assert any("1 sample was judged by KernelBench alone, and with" in note for note in found.notes)
    assert found.kernelbench[0].correct_count == 2

    # Where the suite says that problem 2 is one, it still was answered; problem 3 was not.
    found, answers, _ = analyze(read_run(tmp_path / "run"), Opponents(), suite_of(2, 3, 4), {})
    assert [each.number for each in answers] == [3, 4]
    assert found.groups[0].unanswered == 1
    assert any("alone, and with that 1 problem: in the numbers `with K" in note for note in found.notes)


def test_the_line_says_how_many_of_its_fast_are_no_gains_of_ours(tmp_path) -> None:
    """KernelBench's definition knows no word that is not shown: its number stays, and beside it what we credit."""
    unshown = {"confirmed": False, "decision": "inconclusive"}
    verdicts = [judged(1, 3.0, **unshown), judged(2, 2.0), judged(3, 1.5, told=3.0), judged(4), judged(5, 0.5)]
    verdicts.append(judged(2, 3.0, sample=1, **unshown))
    folder = run_folder(tmp_path / "run", verdicts)
    export(folder, verdicts, [])
    stored = baselines(tmp_path / "timing", [baseline(number, None) for number in range(1, 6)])
    found, answers, _ = analyze(read_run(folder), Opponents.read([stored]), None, {})
    (score,) = found.kernelbench
    assert (score.fast_p["1.0"], score.aligned, score.uncredited) == (0.6, 5, 1)
    said = "; of the 3 in fast_1.0, 1 is a gain that our verdicts do not credit"
    assert score_line(score).endswith(said)
    assert said in Page(render(found, answers, verdicts, {}, {})).text


def test_a_run_that_was_begun_by_kernelbench_has_numbers_of_all_of_it(tmp_path) -> None:
    """Beside ours, which are of what was judged here; those it has no times for are in pass@1."""
    theirs(tmp_path)
    run_folder(tmp_path / "run", [judged(4, 3.0), judged(5)])
    with Ledger(tmp_path / "run") as ledger:
        ledger.take_over([Foreign(level=1, problem=number, sample=0, outcome={}) for number in (1, 2, 3)])
    run, suite = read_run(tmp_path / "run"), suite_of(1, 2, 3, 4, 5, 6)
    found, answers, _ = analyze(run, Opponents.read([tmp_path / "timing"]), suite, {})
    ours, both = found.groups
    assert (ours.name, ours.problems, ours.unanswered, ours.pass_at["1"].count) == ("all", 3, 1, 1)
    assert (both.name, both.problems, both.unanswered, both.pass_at["1"].count) == ("with KernelBench's", 6, 1, 3)
    assert [each.number for each in answers] == [4, 5, 6], "their own rows are none of ours"
    eager = both.against[0]
    assert (eager.problems, eager.fast["0"].count, eager.fast["1"].count, eager.untimed) == (6, 3, 2, 1)
    assert ours.against[0].faster and eager.faster is None

    bare, *_ = analyze(run, Opponents(), suite, {})
    assert (bare.groups[1].pass_at["1"].count, bare.groups[1].against[0].problems) == (3, 3)
    assert "3 problems that KernelBench judged have no time of eager to stand against: in no fast_p" in bare.notes
    # The row's count is of its pass@1; what fast_p is of stands beside the opponent.
    console = Console(width=300, file=io.StringIO())
    console.print(analysis_text(bare))
    assert re.search(r"with KernelBench's: 6 +eager: 3 ", console.file.getvalue())
    assert "with KernelBench's 6 problems eager 3 of 6 " in Page(render(bare, answers, run.judged, {}, {})).text


def test_results_of_another_device_have_no_times_beside_verdicts(tmp_path) -> None:
    theirs(tmp_path)
    file = tmp_path / "run" / RESULTS
    entries = json.loads(file.read_text())
    entries["1"][0]["metadata"] = {"hardware": "another CPU"}
    file.write_text(json.dumps(entries))
    run_folder(tmp_path / "run", [judged(4, 3.0)])
    with Ledger(tmp_path / "run") as ledger:
        ledger.take_over([Foreign(level=1, problem=1, sample=0, outcome={})])
    found, *_ = analyze(read_run(tmp_path / "run"), Opponents.read([tmp_path / "timing"]), None, {})
    assert (found.groups[1].pass_at["1"].count, found.groups[1].against[0].fast["1"].of) == (2, 1)
    # Of a suite without problem 2 it is no part.
    assert read_run(tmp_path / "run").on(suite_of(3, 4)).foreign == ()


@pytest.mark.parametrize(
    ("entry", "status"),
    [
        ({"compiled": True, "correctness": True}, Status.PASSED),
        ({"compiled": False, "correctness": False, "metadata": {"compilation_error": "x"}}, Status.COMPILE_ERROR),
        ({"compiled": False, "correctness": False, "metadata": {"error": "Evaluation timed out"}}, Status.TIMEOUT),
        ({"compiled": False, "correctness": False, "metadata": {"error": "a pickle"}}, Status.CRASHED),
        ({"compiled": False, "correctness": False, "metadata": {"cuda_error": "CUDA Error: x"}}, Status.CRASHED),
        ({"compiled": False, "correctness": False, "metadata": {"other_error": "error: x"}}, Status.CRASHED),
        ({"compiled": True, "correctness": False, "metadata": {"runtime_error": "x"}}, Status.RUNTIME_ERROR),
        ({"compiled": True, "correctness": False, "metadata": {"max_difference": ["1"]}}, Status.INCORRECT_VALUE),
    ],
)
def test_their_endings_have_our_names(entry, status) -> None:
    assert kernelbench_status(entry) == status.value
