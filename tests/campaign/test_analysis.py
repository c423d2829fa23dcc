"""The numbers of a run, on verdicts whose numbers are known by hand."""

import hashlib
import io
import json

import pytest
from made_up_runs import ENVIRONMENT, baseline, baselines, judged, run_folder, suite_of, timing
from rich.console import Console
from typer.testing import CliRunner

from kernelyard.campaign.analysis import Analysis
from kernelyard.campaign.baselines import Variant
from kernelyard.campaign.kernelbench_files import export
from kernelyard.campaign.ledger import Ledger
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.outcomes import BEST, EAGER, of_judged
from kernelyard.campaign.runs import analyze, flagged, read_run
from kernelyard.cli.main import build
from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Flag, Status, Timing
from kernelyard.report.campaign import analysis_text

SIX = [
    judged(1, 3.0),
    judged(2, 1.5),
    judged(3, 1.01),
    judged(4, 0.5),
    judged(5),
    judged(6, status=Status.TIMEOUT),
]


def analysed(tmp_path, verdicts=SIX, stored=(), suite=None, degenerate=None, **settings) -> Analysis:
    run = read_run(run_folder(tmp_path / "run", verdicts))
    opponents = Opponents.read([baselines(tmp_path / "timing", stored)] if stored else [])
    return analyze(run, opponents, suite, degenerate or {}, **settings)[0]


def test_every_number_of_a_small_run(tmp_path) -> None:
    found = analysed(tmp_path).groups[0]
    assert found.problems == 6
    against = found.against[0]
    assert against.opponent == EAGER
    assert {p: share.count for p, share in against.fast.items()} == {"0": 4, "1": 3, "2": 1}
    assert against.faster.count == 2, "1 % is within the margin: a tie, and not faster"
    assert against.speedup.value == pytest.approx((3.0 * 1.5 * 1.01 * 0.5) ** 0.25)
    assert found.pass_at["1"].value == pytest.approx(4 / 6)
    assert found.floor.value == pytest.approx((0.3 * 0.15 * 0.101 * 0.05) ** 0.25)
    assert {(ending.status, ending.phase): ending.samples for ending in found.endings} == {
        ("passed", None): 4,
        ("incorrect_value", "check"): 1,
        ("timeout", "check"): 1,
    }


def test_no_p_takes_anothers_name(tmp_path) -> None:
    """`--p 0.9999999`, at least as fast, was in six digits 1 and overwritten by it."""
    fast = analysed(tmp_path, [judged(1, 1.0)], p_values=(0.9999999, 1.0)).groups[0].against[0].fast
    assert {p: share.count for p, share in fast.items()} == {"0.9999999": 1, "1": 0}


def test_the_faster_of_eager_and_compile_is_the_harder_opponent(tmp_path) -> None:
    """Compile takes 1/2, 2 and 1/1.01 of eager's time, fails on 4, and nobody measured 6."""
    stored = [baseline(1, 0.5), baseline(2, 2.0), baseline(3, 1 / 1.01), baseline(4, None), baseline(5, 0.5)]
    found = analysed(tmp_path, stored=stored)
    eager, best = found.groups[0].against
    assert (eager.problems, best.problems) == (6, 5)
    assert best.opponent == BEST
    assert {p: share.count for p, share in best.fast.items()} == {"0": 4, "1": 2, "2": 0}
    assert best.faster.count == 2
    assert best.speedup.value == pytest.approx((1.5 * 1.5 * 1.0 * 0.5) ** 0.25, rel=1e-6)
    assert any(note.endswith("mode and device: 1 of 6 verdicts") for note in found.notes)


def test_what_the_judges_own_clock_did_not_see_counts_for_nothing(tmp_path) -> None:
    """Neither against eager nor against compile; what is claimed would else be paid in every mean."""
    verdicts = [judged(1, 3.0, confirmed=False, decision="inconclusive")]
    for opponent in analysed(tmp_path, verdicts, stored=[baseline(1, 0.5)]).groups[0].against:
        assert opponent.fast["0"].count == 1 and opponent.fast["1"].count == 0
        assert opponent.faster.count == 0
        assert opponent.speedup.value == pytest.approx({EAGER: 1.0, BEST: 0.5}[opponent.opponent])


def test_a_claim_that_is_not_shown_is_no_nearer_to_the_floor_than_eager(tmp_path) -> None:
    """Three times as fast by the worker's word: 30 % of the floor, where eager reaches 10."""
    unshown = judged(1, 3.0, confirmed=False, decision="inconclusive")
    assert analysed(tmp_path / "unshown", [unshown]).groups[0].floor.value == pytest.approx(0.1)
    tie = judged(1, 1.01, confirmed=False, decision="tie")
    for verdict, near in ((judged(1, 3.0), 0.3), (tie, 0.101), (judged(1, 0.5, confirmed=False), 0.05)):
        assert analysed(tmp_path / str(near), [verdict]).groups[0].floor.value == pytest.approx(near)


def test_of_a_claim_that_is_not_shown_more_is_kept_than_is_credited() -> None:
    """A wide interval that holds 1 makes it no less of a claim, and beside compile it is what it is beside eager."""
    claim = judged(1, 3.0, half=1.2, confirmed=False, decision="inconclusive")
    stored = {compiled: baseline(1, compiled) for compiled in (0.5, 1 / 3, 0.05)}
    for compiled, decision in ((0.5, "inconclusive"), (1 / 3, "inconclusive"), (0.05, "slower")):
        gains = of_judged(claim, lambda *_, compiled=compiled: stored[compiled], ()).gains  # type: ignore[misc]
        assert (gains[EAGER].ratio, gains[EAGER].low, gains[EAGER].measured.ratio) == (1.0, None, 3.0)
        assert gains[BEST].ratio == pytest.approx(compiled) and gains[BEST].low is None
        assert gains[BEST].measured.ratio == pytest.approx(3 * compiled) and gains[BEST].decision == decision


def test_of_a_gain_that_is_shown_in_part_both_numbers_stand_side_by_side(tmp_path) -> None:
    """A reader of the table or of the record need not look for what was told in a flag's text."""
    verdicts = [judged(1, 2.0, told=4.0), judged(2, 2.0), judged(3, 3.0, confirmed=False, decision="inconclusive")]
    found = analysed(tmp_path, verdicts, stored=[baseline(number, 0.5) for number in (1, 2, 3)])
    for against, over in zip(found.groups[0].against, (1.0, 2.0), strict=True):
        assert against.speedup.value == pytest.approx((2 * 2 * 1) ** (1 / 3) / over)
        assert against.told.value == pytest.approx((4 * 2 * 3) ** (1 / 3) / over)
    told = [(claim.problem, claim.told, claim.credited) for claim in found.claims]
    assert told == [(3, 3.0, 1.0), (1, 4.0, 2.0)]
    assert any(
        "1 gain counts as far" in note and "level_1_problem_1_sample_0, 2x of 4x" in note for note in found.notes
    )
    console = Console(width=300, file=io.StringIO())
    console.print(analysis_text(found))
    assert "as told" in console.file.getvalue() and "2.88x" in console.file.getvalue()
    plain = analysed(tmp_path / "plain", [judged(1, 2.0)])
    assert plain.groups[0].against[0].told is None and not plain.claims


def test_the_mean_of_what_is_the_reference_itself_is_1_and_none_of_it_is_a_gain(tmp_path) -> None:
    """Ties to either side, none seen by the judge's own clock: cut off at 1 their mean was a loss."""
    speedups = (1.006, 1 / 1.006, 1.004, 1 / 1.004)
    ties = [judged(number, speedup, confirmed=False) for number, speedup in enumerate(speedups, 1)]
    found = analysed(tmp_path, [*ties, judged(5, 1.5, half=0.6, confirmed=False, decision="inconclusive")])
    against = found.groups[0].against[0]
    assert against.speedup.value == pytest.approx(1.0)
    assert {p: share.count for p, share in against.fast.items()} == {"0": 5, "1": 0, "2": 0}
    (note,) = [note for note in found.notes if "counted as 1x" in note]
    assert note.startswith("1 speedup above 1 is no tie, and")


@pytest.mark.parametrize(
    "changes",
    [
        {"problem_sha256": "an older text"},
        {"dtype": "bfloat16"},
        {"train_mode": True},
        {"environment": ENVIRONMENT.model_copy(update={"device_name": "another CPU"})},
        {"times": {Variant.EAGER: baseline(1, 1.0).times[Variant.EAGER]}},
    ],
)
def test_a_stale_baseline_is_not_used(tmp_path, changes) -> None:
    run = read_run(run_folder(tmp_path / "run", SIX))
    folder = baselines(tmp_path / "timing", [baseline(1, 0.5, **changes)])
    for view in folder.glob("*.json"):
        view.unlink()
    found, *_ = analyze(run, Opponents.read([folder]), None, {})
    assert [against.opponent for against in found.groups[0].against] == [EAGER]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"failures": {}, "times": {Variant.EAGER: timing(1.0), Variant.CUDAGRAPHS: timing(0.5)}}, "was not tried"),
        ({"times": {v: timing(1.0).model_copy(update={"cache": "warm"}) for v in (Variant.EAGER, Variant.COMPILE)}},
         "by another method"),
    ],
)  # fmt: skip
def test_what_cannot_stand_against_compile_stands_against_eager_alone_and_is_said(tmp_path, changes, note) -> None:
    """Counted without a gain it would be a right solution that is never fast."""
    found = analysed(tmp_path, [judged(1, 4.0)], stored=[baseline(1, 0.5, **changes)])
    assert [against.opponent for against in found.groups[0].against] == [EAGER]
    assert any(note in said for said in found.notes)


def test_wrong_answers_stand_where_right_ones_do(tmp_path) -> None:
    """Of times that are not comparable the right ones were left out, and what was wrong was all there was: 0 % of 2."""
    warm = {v: timing(1.0).model_copy(update={"cache": "warm"}) for v in (Variant.EAGER, Variant.COMPILE)}
    stored = [baseline(number, None, failures={}, times=warm) for number in (1, 2, 3)]
    found = analysed(tmp_path, [judged(1, 4.0), judged(2)], stored=stored)
    assert [against.opponent for against in found.groups[0].against] == [EAGER]
    found, *_ = analyze(read_run(tmp_path / "run"), Opponents.read([tmp_path / "timing"]), suite_of(1, 2, 3), {})
    assert [(against.opponent, against.problems) for against in found.groups[0].against] == [(EAGER, 3)]


def test_the_folder_of_a_device_is_named_to_whoever_gives_the_one_above_it(tmp_path) -> None:
    for name in ("B200", "A100"):
        baselines(tmp_path / name, [baseline(1, 0.5)])
    (tmp_path / "0_notes").mkdir()
    with pytest.raises(UsageError, match=rf"expected a folder of baselines, such as {tmp_path}/A100$"):
        Opponents.read([tmp_path])
    with pytest.raises(UsageError, match=r"expected a folder of baselines$"):
        Opponents.read([tmp_path / "0_notes"])


def test_a_problem_stands_against_whom_all_of_its_samples_do(tmp_path) -> None:
    """Whichever sample comes first: one is of a text that nobody has a baseline of."""
    older = judged(1, 2.0, sample=1).verdict.model_copy(update={"problem_sha256": "an older text"})
    for samples in ((0, 1), (1, 0)):
        new, old = judged(1, 2.0, sample=samples[0]), judged(1, 2.0, sample=samples[1])
        found = analysed(
            tmp_path / str(samples), [new, old.model_copy(update={"verdict": older})], stored=[baseline(1, 0.5)]
        )
        assert [against.opponent for against in found.groups[0].against] == [EAGER]


def test_what_nobody_answered_stands_where_a_run_of_two_devices_does(tmp_path) -> None:
    """Where a run goes on with other threads of a CPU: problem 3 was no wrong answer beside compile."""
    other = ENVIRONMENT.model_copy(update={"device_name": "a CPU (1 threads)"})
    verdicts = [judged(1, 3.0), judged(2, 3.0, environment=other)]
    eager, best = (
        analysed(tmp_path, verdicts, [baseline(n, 0.5) for n in (1, 2, 3)], suite_of(1, 2, 3)).groups[0].against
    )
    assert (eager.problems, best.problems, best.fast["0"].count) == (3, 2, 1)


@pytest.mark.parametrize("stored_ms", [1.2, 1.3, 0.75], ids=["near", "longer", "shorter"])
def test_a_stored_time_that_is_far_from_that_of_the_rounds_is_said(tmp_path, stored_ms) -> None:
    """In the verdicts' own rounds eager took 1 ms; of two problems one was stored in another state of the machine."""
    times = {Variant.EAGER: timing(stored_ms), Variant.COMPILE: timing(1.0)}
    stored = [baseline(1, 0.5), baseline(2, None, times=times, failures={})]
    verdicts = [judged(1, 2.0), judged(2, 2.0), judged(2, 2.1, sample=1), judged(3)]
    found = analysed(tmp_path, verdicts, stored)
    said = [note for note in found.notes if "stored time of eager" in note]
    far = "of 1 of 2 problems the stored time of eager is more than 1.25 times off what it took in the verdicts' own"
    most = f" rounds, most of 1/2_Made_Up.py: {stored_ms} ms stored, 1 ms in the rounds"
    assert said == ([] if stored_ms == 1.2 else [f"{far}{most}"])
    (tmp_path / "timing/kernelyard.jsonl").unlink()
    export(tmp_path / "run", verdicts, [])
    theirs = analyze(read_run(tmp_path / "run"), Opponents.read([tmp_path / "timing"]), None, {})[0]
    line = "; KernelBench's line is off by as much"
    found = [note for note in theirs.notes if "stored time of eager" in note]
    assert found == [f"{note}{line}" for note in said], "by KernelBench's files as well, whose line divides by them"


def test_a_stored_baseline_whose_samples_lie_wide_apart_is_said(tmp_path) -> None:
    wide = Timing(samples_ms=(1.0,) * 10 + (2.0,) * 5, timer="cuda_event", cache="cold")
    times = {Variant.EAGER: timing(1.0), Variant.COMPILE: wide}
    stored = [baseline(1, 0.5), baseline(2, None, times=times, failures={})]
    found = analysed(tmp_path, [judged(1, 2.0), judged(2, 2.0)], stored)
    (note,) = [note for note in found.notes if "disturbed" in note]
    assert note.startswith("1 of 2 stored baselines may") and "1/2_Made_Up.py, compile, whose" in note


def test_another_torch_is_said(tmp_path) -> None:
    stored = [baseline(1, 0.5, environment=ENVIRONMENT.model_copy(update={"torch": "1.0"}))]
    assert any("baselines are of torch 1.0" in note for note in analysed(tmp_path, stored=stored).notes)


def test_several_samples_count_as_one_drawn_at_random(tmp_path) -> None:
    verdicts = [judged(1, 3.0, sample=0), judged(1, 0.5, sample=1), judged(1, sample=2), judged(2, sample=0)]
    found = analysed(tmp_path, verdicts, k_values=(1, 2)).groups[0]
    assert found.against[0].fast["0"].count == pytest.approx(2 / 3)
    assert found.against[0].fast["1"].count == pytest.approx(1 / 3)
    assert found.pass_at["1"].count == pytest.approx(2 / 3)
    assert (found.pass_at["2"].count, found.pass_at["2"].of) == (1.0, 1), "problem 2 has one sample"


def test_a_k_that_no_problem_has_samples_for_is_not_known_and_said(tmp_path) -> None:
    """Problem 3 has no answer: it alone would make pass@2 nothing."""
    run = read_run(run_folder(tmp_path / "run", [judged(1, 3.0), judged(2)]))
    found, *_ = analyze(run, Opponents(), suite_of(1, 2, 3), {}, k_values=(1, 2))
    assert list(found.groups[0].pass_at) == ["1"]
    assert "no problem has 2 samples: pass@2 is not known" in found.notes
    assert found.suite_sha256 == suite_of(1, 2, 3).sha256
    assert f"suite {found.suite_sha256[:16]}" in found.settings


def test_what_the_machine_failed_is_in_no_share_and_what_nobody_answered_is(tmp_path) -> None:
    verdicts = [judged(1, 3.0), judged(2, status=Status.INFRA_ERROR), judged(3, status=Status.INVALID_PROBLEM)]
    found = analysed(tmp_path, verdicts, suite=suite_of(1, 2, 3, 4)).groups[0]
    assert found.problems == 2
    assert found.left_out == ("level 1 problem 2", "level 1 problem 3")
    assert found.unanswered == 1
    assert found.against[0].fast["0"].value == 0.5
    assert found.pass_at["1"].value == 0.5


def test_a_right_sample_without_a_time_is_in_fast_0_alone(tmp_path) -> None:
    found = analysed(tmp_path, [judged(1, status=Status.PASSED), judged(2, 3.0)]).groups[0].against[0]
    assert {p: share.count for p, share in found.fast.items()} == {"0": 2, "1": 1, "2": 1}
    assert found.untimed == 1


def test_degenerate_problems_are_counted_apart_and_levels_too(tmp_path) -> None:
    flags = (Flag(name="degenerate_problem", evidence="another input's answer passes"),)
    verdicts = [judged(1, 3.0, flags=flags), judged(2), judged(1, 3.0, level=2)]
    run = read_run(run_folder(tmp_path / "run", verdicts))
    found, *_ = analyze(run, Opponents(), None, flagged(run))
    assert {group.name: group.against[0].fast["1"].value for group in found.groups} == {
        "all": pytest.approx(2 / 3),
        "level 1": 0.5,
        "level 2": 1.0,
        "without degenerate": 0.5,
    }
    assert found.degenerate == {"level 1 problem 1": "another input's answer passes"}


def test_verdicts_on_other_texts_than_the_suites_are_left_out_and_counted(tmp_path) -> None:
    """They would be numbers of problems that nobody asked; those of problems that were not chosen are in none, too."""
    older = {"problem_sha256": "an older text"}
    verdicts = [judged(1, 3.0), judged(2, 9.0, **older), judged(3, 9.0, **older), judged(3, sample=1), judged(9, 9.0)]
    run = read_run(run_folder(tmp_path / "run", verdicts))
    suite = suite_of(1, 2, 3, 4)
    found, answers, _ = analyze(run.on(suite), Opponents(), suite, {})
    assert [(each.number, len(each.outcomes)) for each in answers] == [(1, 1), (3, 1), (4, 0)]
    assert found.groups[0].against[0].fast["0"].count == 1
    (note,) = [note for note in found.notes if "not of this suite" in note]
    assert note.startswith("2 verdicts") and "1 problem that has no other" in note
    with pytest.raises(UsageError, match=r"none of 5 verdicts .* \(1 are on other texts of its problems, 4"):
        run.on(suite_of(2))


def test_the_command_leaves_them_out_alone_and_beside_another_run(tmp_path) -> None:
    problems, text = tmp_path / "problems", "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    problems.mkdir()
    (problems / "1_x.py").write_text(text)
    of_suite = judged(1, 2.0, level=0, problem_sha256=hashlib.sha256(text.encode()).hexdigest())
    fine, other = run_folder(tmp_path / "fine", [of_suite]), run_folder(tmp_path / "other", [judged(1, 2.0, level=0)])
    for words in ([str(other)], ["--compare", str(fine), str(other)]):
        done = CliRunner().invoke(build("analyze"), ["analyze", *words, "--suite", str(problems)])
        assert isinstance(done.exception, UsageError) and f"{other}: none of 1 verdicts" in str(done.exception)
    assert CliRunner().invoke(build("analyze"), ["analyze", str(fine), "--suite", str(problems)]).exit_code == 0


def test_a_level_is_a_part_of_a_run(tmp_path) -> None:
    run = run_folder(tmp_path / "run", [judged(1, 2.0), judged(1, 3.0, level=2)])
    with Ledger(run) as ledger:
        export(run, ledger.judged(), [])
    part = read_run(run).of([2])
    assert [each.level for each in part.judged] == [2] and list(part.results) == [2]
    with pytest.raises(UsageError, match="no verdict on level 3"):
        read_run(run).of([3])
    done = CliRunner().invoke(build("analyze"), ["analyze", str(run), "--level", "1", "--json"])
    assert done.exit_code == 0
    counted = json.loads(done.stdout.splitlines()[-1])
    assert [group["problems"] for group in counted["groups"]] == [1]


def test_a_folder_that_is_no_run_is_said(tmp_path) -> None:
    with pytest.raises(UsageError, match="expected the folder of a run"):
        read_run(tmp_path)


def test_the_record_survives_its_file(tmp_path) -> None:
    found = analysed(tmp_path, stored=[baseline(1, 0.5)])
    assert Analysis.model_validate_json(found.model_dump_json()) == found
