"""Two runs beside each other: what differs, what may be chance, and what must not be compared at all."""

import json
import random

import pytest
from made_up_runs import ENVIRONMENT, judged, run_folder, suite_of

from kernelyard.campaign.comparison import Comparison, Side, compare
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.records import Judged
from kernelyard.campaign.runs import answers_of, read_run, side_of
from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Status


def compared(tmp_path, a, b, p_values=(0.0, 1.0)) -> Comparison:
    sides = []
    for name, verdicts in (("a", a), ("b", b)):
        run = read_run(run_folder(tmp_path / name, verdicts))
        sides.append(side_of(run, answers_of(run, Opponents(), None)))
    return compare(*sides, p_values)


def test_a_run_beside_itself_differs_in_nothing(tmp_path) -> None:
    verdicts = [judged(problem, 1 + problem / 10) for problem in range(1, 11)]
    found = compared(tmp_path, verdicts, verdicts)
    assert found.problems == 10
    assert not any(each.real for each in (*found.summary, *found.single))
    assert {each.chance for each in (*found.summary, *found.single)} == {1.0}


def test_each_number_of_problems_is_a_part_of_the_one_before_it(tmp_path) -> None:
    """Of six, nobody but a answered one; one is wrong in b, one has two samples, one a gain that is not shown."""
    unshown = {"confirmed": False, "decision": "inconclusive"}
    a = [judged(number, 2.0) for number in range(1, 7)]
    b = [judged(1, 3.0), judged(2), judged(3, 3.0), judged(3, 3.0, sample=1), judged(4, 3.0, **unshown), judged(5, 2.0)]
    sides = []
    for name, verdicts in (("a", a), ("b", b)):
        run = read_run(run_folder(tmp_path / name, verdicts))
        sides.append(side_of(run, answers_of(run, Opponents(), suite_of(*range(1, 7)))))
    found = compare(*sides, (0.0, 1.0))
    assert (found.problems, found.answered, found.solved, len(found.single)) == (6, 5, 4, 2)
    assert any(note.startswith("2 problems that both solved are not compared one by one") for note in found.notes)


def test_shares_are_told_apart_by_the_problems_that_differ(tmp_path) -> None:
    """Twelve that only a solves: McNemar's exact chance is 2 / 4096. Three could be chance."""
    a = [judged(problem, 1.5) for problem in range(1, 31)]
    b = [judged(problem, 1.5 if problem > 12 else None) for problem in range(1, 31)]
    correct = compared(tmp_path / "twelve", a, b).summary[0]
    assert correct.what == "fast_0"
    assert (correct.only_a, correct.only_b) == (12, 0)
    assert correct.chance == pytest.approx(3 * 2 / 4096), "one of three questions"
    assert correct.real
    b = [judged(problem, 1.5 if problem > 3 else None) for problem in range(1, 31)]
    assert not compared(tmp_path / "three", a, b).summary[0].real


def test_ten_samples_are_no_better_than_one_of_the_same_model(tmp_path) -> None:
    """Where one in five is right, a share of ten samples is above that of one on most problems. What is shown is what
    is tested, the first sample of either."""
    draw = random.Random(0)

    def samples(count: int) -> list[Judged]:
        return [
            judged(problem, 1.5 if draw.random() < 0.2 else None, sample=sample)
            for problem in range(1, 61)
            for sample in range(count)
        ]

    for name, (a, b) in {"ten": (1, 10), "one": (10, 1)}.items():
        runs = samples(a), samples(b)
        both = compared(tmp_path / name, *runs)
        correct = both.summary[0]
        firsts = [sum(one.verdict.status is Status.PASSED for one in run if not one.key.sample) / 60 for run in runs]
        assert (correct.a, correct.b) == pytest.approx(firsts)
        assert (
            both.notes[-1] == "of 60 problems a run has more samples than the other: shares here are of the first ones"
        )
        assert not correct.real
    unanswered = compared(
        tmp_path / "real", samples(1), [judged(n, 1.5, sample=k) for n in range(1, 61) for k in (0, 1)]
    )
    assert unanswered.summary[0].real


def test_beside_no_answer_as_many_samples_count_as_that_run_has_of_others(tmp_path) -> None:
    """A problem that b left out, and that a solves by its second sample alone, is no gain of a's."""
    a = [judged(n, 1.5 if sample else None, sample=sample) for n in (1, 2) for sample in (0, 1)]
    b = [judged(1, 1.5)]
    sides = []
    for name, verdicts in (("a", a), ("b", b)):
        run = read_run(run_folder(tmp_path / name, verdicts))
        sides.append(side_of(run, answers_of(run, Opponents(), suite_of(1, 2))))
    correct = compare(*sides, (0.0,)).summary[0]
    assert (correct.only_a, correct.only_b) == (0, 1)


def test_a_run_in_which_nothing_was_timed_is_compared_by_what_is_right(tmp_path) -> None:
    found = compared(tmp_path, [judged(n) for n in range(1, 21)], [judged(n, 2.0) for n in range(1, 21)])
    assert found.summary[0].real and found.summary[0].only_b == 20


def test_of_two_texts_in_one_run_a_problem_is_left_out(tmp_path) -> None:
    """Whichever sample comes last."""
    a = [judged(1, 2.0, sample=0, problem_sha256="old"), judged(1, 2.0, sample=1), judged(2, 2.0)]
    found = compared(tmp_path, a, [judged(1, 2.0), judged(2, 2.0)])
    assert (found.problems, list(found.left_out.values())) == (1, ["the problem's text differs"])


def test_speedups_are_paired_by_problem(tmp_path) -> None:
    """Problems differ by 100x and the runs by 10 %: unpaired, nothing would show."""
    draw = random.Random(0)
    speeds = [10 ** draw.uniform(-1, 1) for _ in range(30)]
    a = [judged(number, 1.1 * speed * draw.uniform(0.99, 1.01)) for number, speed in enumerate(speeds, 1)]
    b = [judged(number, speed) for number, speed in enumerate(speeds, 1)]
    speed = compared(tmp_path, a, b).summary[-1]
    assert speed.ratio == pytest.approx(1.1, rel=0.01)
    assert speed.low > 1.08
    assert speed.real


def test_single_problems_need_more_than_noise_and_more_than_the_margin(tmp_path) -> None:
    a = [judged(1, 1.2), judged(2, 1.01, half=0.001), judged(3, 1.2, half=0.3)]
    b = [judged(1, 1.0), judged(2, 1.0, half=0.001), judged(3, 1.0, half=0.3)]
    found = compared(tmp_path, a, b).single
    assert [each.real for each in found] == [True, False, False]
    assert found[1].chance < 0.05, "sure, and within the margin"


def test_many_questions_make_chance_findings_rarer(tmp_path) -> None:
    """One problem of 200 that looks different at 1 % alone is no news."""
    half = 0.03
    b = [judged(problem, 1.0, half=half) for problem in range(1, 201)]
    a = [judged(1, 1.07, half=half), *b[1:]]
    assert compared(tmp_path / "one", a[:1], b[:1]).single[0].real
    assert not any(each.real for each in compared(tmp_path / "many", a, b).single)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bfloat16"},
        {"train_mode": True},
        {"environment": ENVIRONMENT.model_copy(update={"device_name": "another CPU"})},
    ],
)
def test_unlike_settings_are_refused(tmp_path, changes) -> None:
    with pytest.raises(UsageError, match="cannot be compared"):
        compared(tmp_path, [judged(1, 2.0)], [judged(1, 2.0, **changes)])


def test_the_order_of_two_runs_does_not_decide_what_is_compared() -> None:
    """KernelBench kept no dtype: from its side there was nothing to disagree about."""
    known = Side("known", {}, {}, {"device": "a", "dtype": "float32"}, {"torch": "2"})
    less = Side("less", {}, {}, {"device": "a"}, {})
    for a, b in ((known, less), (less, known)):
        with pytest.raises(UsageError, match="cannot be compared: dtype"):
            compare(a, b, [1.0])


def test_unlike_versions_are_said_and_other_texts_left_out(tmp_path) -> None:
    newer = ENVIRONMENT.model_copy(update={"torch": "3"})
    a = [judged(1, 2.0), judged(2, 2.0), judged(3, 2.0), judged(4, 2.0)]
    b = [
        judged(1, 2.0, environment=newer),
        judged(2, 2.0, problem_sha256="another"),
        judged(3, status=Status.INFRA_ERROR),
    ]
    found = compared(tmp_path, a, b)
    assert found.problems == 1
    assert list(found.left_out.values()) == [
        "the problem's text differs",
        f"no verdict in {found.b}",
        f"not in {found.b}",
    ]
    assert found.notes == ("torch differs: 2 and 2 and 3",)


def test_nothing_in_common_is_said(tmp_path) -> None:
    with pytest.raises(UsageError, match="no problem in common"):
        compared(tmp_path, [judged(1, 2.0)], [judged(2, 2.0)])


@pytest.mark.parametrize("known, questions", [((), ["fast_0"]), ((1,), ["fast_0", "fast_1"])])
def test_what_no_baseline_has_is_no_slower_than_it(tmp_path, known, questions) -> None:
    """0 % of both were faster, and each such question made the others' chances larger."""
    stored = tmp_path / "baseline_time_torch.json"
    stored.write_text(json.dumps({"level1": {f"{number}_x.py": {"mean": 2.0} for number in known}}))
    sides = []
    for name, runtime in (("a", 1.0), ("b", 4.0)):
        (tmp_path / name).mkdir()
        entry = {"sample_id": 0, "compiled": True, "correctness": True, "runtime": runtime}
        (tmp_path / name / "eval_results.json").write_text(json.dumps({"1": [entry], "2": [entry]}))
        run = read_run(tmp_path / name, [1])
        sides.append(side_of(run, answers_of(run, Opponents.read([stored]), None)))
    found = compare(*sides, (0.0, 1.0))
    assert [each.what for each in found.summary] == questions
    assert [(each.problems, each.a, each.b) for each in found.summary[1:]] == [(1, 1.0, 0.0)] * len(known)
