"""A run that nothing stands against, and samples that no share counts, on its page and in its pictures."""

import json
from pathlib import Path

from html_page import Page

from kernelyard.campaign.analysis import Analysis, Answers
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.outcomes import BEST, EAGER, OPPONENTS, Gain, Outcome
from kernelyard.campaign.records import Key
from kernelyard.campaign.runs import analyze, read_run
from kernelyard.report.campaign_html import render
from kernelyard.report.campaign_plots import save_pictures
from kernelyard.report.distribution import curve, histogram


def analyzed(folder: Path) -> tuple[Analysis, list[Answers]]:
    """Ten problems by KernelBench's results, half of them right, beside no baseline."""
    told = {"sample_id": 0, "compiled": True, "metadata": {}, "runtime": 1.0, "runtime_stats": {}}
    entries = {str(number): [{**told, "correctness": number % 2 == 0}] for number in range(1, 11)}
    (folder / "eval_results.json").write_text(json.dumps(entries))
    return analyze(read_run(folder, [1]), Opponents(), None, {})[:2]


def test_a_run_without_an_opponent_keeps_its_numbers(tmp_path: Path) -> None:
    analysis, answers = analyzed(tmp_path)
    text = Page(render(analysis, answers, (), {}, {})).text
    assert "pass@1 all 10 problems - - - - 50.0 % (18.7-81.3)" in text


def test_a_gain_that_no_share_counts_is_in_no_picture(tmp_path: Path) -> None:
    """Two samples on unlike texts of a problem, a baseline of one: there is a gain, and nothing to count it in."""
    gains = {EAGER: Gain(2.0), BEST: Gain(1.5)}
    both = Outcome(Key(1, 1, 0), "a", "passed", None, True, gains, OPPONENTS)
    one = Outcome(Key(1, 1, 1), "a", "passed", None, True, {EAGER: Gain(2.0)})
    answers = [Answers(1, 1, "a", (EAGER,), (both, one))]
    assert not curve(answers, BEST) and not histogram(answers, BEST)
    assert sum(sum(each.counts.values()) for each in histogram(answers, EAGER)) == 2
    assert len(save_pictures(analyzed(tmp_path)[0], answers, tmp_path)) == 2
