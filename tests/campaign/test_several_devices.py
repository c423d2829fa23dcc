"""Several devices of one machine: used evenly, and the last line of a run says so."""

import re
import threading
from pathlib import Path

import pytest
from command_line import Call
from made_up_runs import judged as of_problem
from solutions import PROBLEMS
from verdicts import judged

from kernelyard.campaign.candidates import Found
from kernelyard.campaign.records import Key
from kernelyard.campaign.slot import Answer, Slot
from kernelyard.cli.run import _Shown
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Status
from kernelyard.judge.compiling import Build
from kernelyard.suites.suite import Entry


def test_two_slots_share_the_work_evenly(tmp_path: Path, kernelyard: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two problems, one with ten of the twelve solutions. No verdict is given before the other slot is at one, too:
    a slot that got less than half would leave the other waiting."""
    both_at_one = threading.Barrier(2, timeout=60)
    asked: list[Slot] = []

    def judge(slot: Slot, entry: Entry, solution: Source, build: Build) -> Answer:
        asked.append(slot)
        both_at_one.wait()
        made = judged(Key(0, 1, 0), Status.INCORRECT_VALUE, solution.sha256, entry.source.sha256)
        return Answer(made.verdict.model_dump_json())

    monkeypatch.setattr(Slot, "judge", judge)
    for folder in ("problems", "run"):
        (tmp_path / folder).mkdir()
    for name, text in PROBLEMS.items():
        (tmp_path / "problems" / name).write_text(text)
    for problem, samples in ((1, 10), (2, 2)):
        for sample in range(samples):
            (tmp_path / f"run/level_0_problem_{problem}_sample_{sample}_kernel.py").write_text(f"x = {sample}")
    words = ["--suite", tmp_path / "problems", "--device", "cpu", "--gpus", "2", "--jobs", "1"]
    done = kernelyard("run", tmp_path / "run", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(map(asked.count, set(asked))) == [6, 6]
    assert re.search(r"^12 judged in .*: 12 incorrect_value; cpu 6, cpu 6$", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize(
    ("devices", "places", "end"),
    [
        (["cuda:0", "cuda:1", "cuda:2"], [2, 0, 2, 2], "4 incorrect_value; cuda:0 1, cuda:1 0, cuda:2 3\n"),
        (["cuda:0"], [0, 0], "2 incorrect_value\n"),
        (["cuda:0", "cuda:1"], [], ": nothing\n"),
    ],
)
def test_each_device_of_several_has_its_count(
    capsys: pytest.CaptureFixture[str], devices: list[str], places: list[int], end: str
) -> None:
    with _Shown(Found((), (), ()), [], devices, 0, 0) as shown:
        for sample, place in enumerate(places):
            shown.judged(of_problem(1, sample=sample), place)
    assert capsys.readouterr().out.endswith(end)
