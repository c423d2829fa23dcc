"""A run that its reader may not write to: another user's, or one on a disk that is mounted to be read."""

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_runs import judged, run_folder

from kernelyard.campaign.ledger import FILE_NAME, Ledger

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


def root_no_more() -> None:
    """Modes of files hold for root, too, once it has executed a program."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def kernelyard(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelyard", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, preexec_fn=root_no_more
    )  # fmt: skip


def shut(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)


def test_a_run_that_can_only_be_read_is_analysed(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "a run #1", [judged(1, 3.0), judged(2)])
    shut(run)
    page = tmp_path / "page.html"
    done = kernelyard("analyze", run, "--html", page, "--json")
    said = f"kernelyard: {run} cannot be written to: analysis.json is not stored, --json prints it\n"
    assert (done.returncode, done.stderr) == (0, said)
    assert json.loads(done.stdout.splitlines()[-1])["groups"][0]["problems"] == 2 and page.exists()
    done = kernelyard("analyze", "--compare", run, run)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in run.iterdir()] == [FILE_NAME]


def test_of_a_killed_run_that_can_only_be_read_no_verdict_is_missed(tmp_path: Path) -> None:
    run, killed = run_folder(tmp_path / "run", [judged(1, 3.0)]), tmp_path / "killed"
    with Ledger(run) as ledger:
        ledger.finish(judged(2, 2.0))
        shutil.copytree(run, killed)
    assert (killed / f"{FILE_NAME}-wal").stat().st_size
    shut(killed)
    done = kernelyard("analyze", killed, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["groups"][0]["samples"] == 2


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_in_a_folder_that_cannot_be_written_to_says_so(tmp_path: Path, begun: bool) -> None:
    run, problems = tmp_path / "run", tmp_path / "problems"
    problems.mkdir()
    (problems / "1_x.py").write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n")
    run_folder(run, []) if begun else run.mkdir()
    (run / "level_0_problem_1_sample_0_kernel.py").write_text("class ModelNew: ...")
    shut(run)
    done = kernelyard("run", run, "--suite", problems, "--device", "cpu")
    assert done.returncode == 2 and done.stderr.endswith("expected a folder that can be written to\n"), done.stderr
