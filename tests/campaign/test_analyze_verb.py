"""`kernelyard analyze` on the command line."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from made_up_runs import baseline, baselines, judged, name_of, run_folder

from kernelyard.suites.degenerate import TABLE, _marks


def kernelyard(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelyard", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_run_is_printed_stored_and_drawn(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [judged(1, 3.0), judged(2)])
    timing = baselines(tmp_path / "timing", [baseline(1, 0.5), baseline(2, 0.5)])
    page = tmp_path / "page.html"
    done = kernelyard("analyze", run, "--baseline", timing, "--p", 1, "--p", 4, "--json", "--html", page)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert list(record["groups"][0]["against"][1]["fast"]) == ["0", "1", "2", "4"]
    assert json.loads((run / "analysis.json").read_text()) == record
    assert "fast_4" in page.read_text()


def test_what_cannot_be_written_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [judged(1, 3.0)])
    absent, folder = tmp_path / "absent/page.html", tmp_path / "folder"
    folder.mkdir()
    for page, why in (
        (absent, ": there is no such folder; expected one to write it into"),
        (folder, " is no file; expected one to write, or a new name"),
    ):
        done = kernelyard("analyze", run, "--html", page)
        assert (done.returncode, done.stderr) == (2, f"kernelyard: {page}{why}\n")
        assert not (run / "analysis.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "run"]
    problems = tmp_path / "problems"
    problems.mkdir()
    (problems / "1_x.py").write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n")
    (tmp_path / "file").touch()
    done = kernelyard("baseline", "--suite", problems, "--device", "cpu", "--out", tmp_path / "file")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "file is no folder; expected one" in done.stderr
    assert "1_x.py" not in done.stdout, "nothing is measured before it is known that it can be kept"


def test_a_run_on_what_admission_did_not_decide_says_so(tmp_path: Path) -> None:
    problems = tmp_path / "KernelBench/level1"
    problems.mkdir(parents=True)
    text = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    (problems / "1_Made_Up.py").write_text(text)
    of_it = {"problem_sha256": hashlib.sha256(text.encode()).hexdigest()}
    for dtype in ("float32", "bfloat16"):
        run = run_folder(tmp_path / dtype, [judged(1, 3.0, dtype=dtype, **of_it)])
        done = kernelyard("analyze", run, "--source", tmp_path, "--level", 1)
        assert done.returncode == 0, done.stderr
        assert f"note: kernelbench, not admitted in {dtype}" in done.stdout
        assert f"not admitted in {dtype}" in (run / "analysis.json").read_text()
    done = kernelyard("analyze", run)
    assert done.returncode == 0 and "admitted" not in done.stdout, "no suite is known"
    own = tmp_path / "own"
    own.mkdir()
    (own / name_of(1)).write_text(text)
    run = run_folder(tmp_path / "of_it", [judged(1, 3.0, level=0, **of_it)])
    done = kernelyard("analyze", run, "--suite", own)
    assert done.returncode == 0 and "note: own, not admitted in float32: only the judge's own flags say" in done.stdout


def test_two_runs_are_compared_and_one_alone_is_needed(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / name, [judged(1, speed), judged(2)]) for name, speed in (("a", 3.0), ("b", 2.0))]
    done = kernelyard("analyze", "--compare", *runs, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["single"][0]["real"]
    assert "2 problems in both: 2 answered by both, 1 solved by both, 1 of these compared one by one" in done.stdout
    assert "of 1 compared one by one, 1 differs in time for good" in done.stdout
    done = kernelyard("analyze")
    assert (done.returncode, done.stderr) == (2, "kernelyard: expected the folder of a run, or --compare RUN_A RUN_B\n")


def test_a_comparison_takes_no_baseline_of_another_device_and_no_k(tmp_path: Path) -> None:
    entry = {"sample_id": 0, "compiled": True, "correctness": True, "metadata": {"hardware": "a"}, "runtime": 1.0}
    runs = [tmp_path / name for name in ("a", "b")]
    for run in runs:
        run.mkdir()
        (run / "eval_results.json").write_text(json.dumps({"1": [entry]}))
    baseline = tmp_path / "baseline_time_torch.json"
    baseline.write_text(json.dumps({"level1": {"1_x.py": {"mean": 2.5, "hardware": "another"}}}))
    for said, rest in (
        ("is of another, the run of a", ["--baseline", baseline]),
        ("--k are of one run", ["--k", 5]),
    ):
        done = kernelyard("analyze", "--compare", *runs, "--level", 1, *rest)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1) and said in done.stderr


def test_what_kernelbenchs_file_calls_a_device_repaints_no_terminal(tmp_path: Path) -> None:
    """Its results are passed around, and this is all of their own words that is printed."""
    entry = {"sample_id": 0, "compiled": True, "correctness": True, "metadata": {"hardware": "\x1b[2J"}, "runtime": 1.0}
    (tmp_path / "eval_results.json").write_text(json.dumps({"1": [entry]}))
    other = tmp_path / "baseline_time_torch.json"
    other.write_text(json.dumps({"level1": {"1_x.py": {"mean": 2.5, "hardware": "\x1b[31m"}}}))
    for rest, code, said in (([], 0, "device \\u001b[2J"), (["--baseline", other], 2, "is of \\u001b[31m, the run of")):
        done = kernelyard("analyze", tmp_path, "--level", 1, *rest)
        assert done.returncode == code
        assert said in done.stdout + done.stderr and "\x1b" not in done.stdout + done.stderr


def test_a_folder_whose_name_is_no_text_is_analysed(tmp_path: Path) -> None:
    run = run_folder(tmp_path / os.fsdecode(b"bad\xff"), [judged(1, 3.0)])
    done = kernelyard("analyze", run, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "analysis.json").read_text())["run"].endswith("bad\ufffd")


def test_what_is_degenerate_is_known_by_its_text_whether_or_not_a_suite_is_named(tmp_path: Path) -> None:
    sha256, mark = next((sha256, mark) for sha256, mark in _marks(TABLE).items() if mark.reasons.get("float32"))
    of_it = {"problem_sha256": sha256, "dtype": "float32"}
    runs = [
        run_folder(tmp_path / name, [judged(1, speed, **of_it), judged(2, 2.0, dtype="float32"), *more])
        for name, speed, more in (("a", 3.0, []), ("b", 2.0, [judged(2, 2.0, dtype="float32", sample=1)]))
    ]
    timing = baselines(tmp_path / "timing", [baseline(1, 0.5), baseline(2, 0.5)])
    done = kernelyard("analyze", runs[0], "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert list(record["degenerate"].values()) == [mark.reasons["float32"]]
    assert [group["name"] for group in record["groups"]] == ["all", "without degenerate"]
    compared = kernelyard("analyze", "--compare", *runs, "--baseline", timing, "--json")
    assert compared.returncode == 0, compared.stderr
    told = json.loads(compared.stdout.splitlines()[-1])
    assert told["notes"] == [
        f"degenerate, and counted here: {next(iter(record['degenerate']))} 1_Made_Up.py",
        "1 problem that both solved is not compared one by one: several samples in a run, or a gain without an interval"
        " that counts",
        "of 1 problem a run has more samples than the other: shares here are of the first ones",
    ]
    assert "fast_1 against min(eager, compile)" in [each["what"] for each in told["summary"]]
