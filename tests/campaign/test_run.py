"""`kernelyard run`, end to end on a CPU: killed, interrupted, shared, and always the same ledger."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import Call
from made_up_runs import judged
from rich.console import Console
from solutions import PROBLEMS, SOLUTIONS, write

from kernelyard.campaign import slot
from kernelyard.campaign.candidates import Found
from kernelyard.campaign.ledger import FILE_NAME, Ledger
from kernelyard.campaign.records import Candidate, Key
from kernelyard.cli import run
from kernelyard.cli.run import TIMEOUT_HELP, _deadlines, _Shown, _warnings
from kernelyard.core.problem import Source
from kernelyard.sandbox import witness
from kernelyard.sandbox.launch import SandboxError, SandboxKind
from kernelyard.sandbox.processes import descendants

ROOT = Path(__file__).parents[2]
CLOCKS = ("clock_mismatch", "outside_clock", "uneven_calls", "under_the_floor")
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts `kernelyard run` on the folder `name`, which is made where it is not there."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path]),
        "KERNELYARD_CACHE": str(tmp_path / "cache"),
        "KERNELYARD_STATE": str(tmp_path / "state"),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }

    def begin(name: str, *options: str) -> "subprocess.Popen[str]":
        problems = tmp_path / f"{name}_problems"
        if not problems.exists():
            write(problems, tmp_path / name)
        command = [sys.executable, "-m", "kernelyard", "run", str(tmp_path / name), "--suite", str(problems)]
        # `check` is what the one that never answers costs.
        command += ["--rounds", "3", "--budget", "0", "--timeout", "load=60,check=5,time=60", *options]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # Where the tests run in the background, a shell has Ctrl-C ignored, and all that they start inherits that.
        return subprocess.Popen(command, env=environment, preexec_fn=heed_ctrl_c, **pipes)

    return begin


def heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: "subprocess.Popen[str]", code: int = 0) -> str:
    out, error = process.communicate(timeout=240)
    assert process.returncode == code, error + out
    assert "Traceback" not in error
    return out


def verdicts(folder: Path) -> dict[tuple[int, int], tuple[Any, ...]]:
    """What does not hang on time or on secret seeds."""
    with Ledger(folder) as ledger:
        found = {}
        for one in ledger.judged():
            verdict = one.verdict
            hashes = (verdict.solution_sha256, verdict.problem_sha256)
            told = (
                verdict.status.value,
                verdict.phase,
                verdict.trials,
                verdict.weights,
                one.problem_name,
                one.attempts,
            )
            found[one.problem, one.sample] = (*told, *hashes)
        return found


def await_verdicts(folder: Path, count: int, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / FILE_NAME).exists():
            with Ledger(folder) as ledger:
                if len(ledger.judged()) >= count:
                    return
        time.sleep(0.1)
    pytest.fail(f"no {count} verdicts; exit code {process.poll()}")


@pytest.mark.slow
def test_killed_three_times_the_ledger_is_that_of_an_undisturbed_run(start: Start, tmp_path: Path) -> None:
    undisturbed = start("undisturbed", "--jobs", "1", "--gpus", "2")
    finish(undisturbed)
    expected = verdicts(tmp_path / "undisturbed")
    assert {key: told[0] for key, told in expected.items()} == {key: status for key, (_, status) in SOLUTIONS.items()}

    folder = tmp_path / "killed"
    for count in (1, 4, 9):
        process = start("killed", "--jobs", "1", "--gpus", "1")
        await_verdicts(folder, count, process)
        tree = descendants(process.pid)
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 30
        while left := [pid for pid in tree if Path(f"/proc/{pid}").exists()]:
            assert time.monotonic() < deadline, f"processes {left} outlive the run"
            time.sleep(0.1)
    # A text that changed after its verdict is judged again, and nothing else is.
    assert verdicts(folder)[1, 7] == expected[1, 7]
    (folder / "level_0_problem_1_sample_7_kernel.py").write_text(SOLUTIONS[1, 5][0])
    assert "have a verdict" in finish(start("killed", "--gpus", "2"))
    found = verdicts(folder)
    assert found.pop((1, 7))[0] == "compile_error" and expected.pop((1, 7))
    assert found == expected
    for name in ("eval_results.json", "pass_at_k_results.json"):
        assert (folder / name).exists()

    # A file that is no ledger is one line.
    (folder / FILE_NAME).write_text("garbage")
    _, error = (broken := start("killed")).communicate(timeout=60)
    assert broken.returncode == 2 and error.count("\n") == 1 and FILE_NAME in error


def test_ctrl_c_loses_nothing_and_another_process_does_the_rest(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    first = start("shared", "--jobs", "1", "--train")
    await_verdicts(folder, 1, first)
    second = start("shared", "--jobs", "1", "--train")
    await_verdicts(folder, 5, second)
    first.send_signal(signal.SIGINT)
    done = finish(first, 128 + signal.SIGINT)
    out = finish(second)
    _, error = (other := start("shared")).communicate(timeout=60)
    assert other.returncode == 2 and error.count("\n") == 1 and "train_mode" in error
    told = {key: told[0] for key, told in verdicts(folder).items()}
    assert told == {key: status for key, (_, status) in SOLUTIONS.items()}
    with Ledger(folder) as ledger:
        assert all(one.verdict.train_mode for one in ledger.judged())
    lines = [line.split()[0] for text in (done, out) for line in text.splitlines() if line.startswith("level_")]
    assert sorted(lines) == sorted(set(lines)), "a candidate was judged twice"
    written = json.loads((folder / "eval_results.json").read_text())
    assert [len(written[problem]) for problem in ("1", "2")] == [8, 4]


def test_what_timed_out_is_judged_again_with_a_longer_deadline(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "slow"
    write(tmp_path / "slow_problems", folder)
    for path in folder.iterdir():
        path.unlink()
    solution = folder / "level_0_problem_1_sample_0_kernel.py"
    solution.write_text(f"import time\ntime.sleep(5)\n{SOLUTIONS[1, 1][0]}")
    finish(start("slow", "--timeout", "load=2"))
    assert verdicts(folder)[1, 0][0] == "timeout"
    finish(start("slow", "--retry", "timeout"))
    assert verdicts(folder)[1, 0][0] != "timeout"


def test_a_mistyped_suite_loses_no_verdict(start: Start, tmp_path: Path) -> None:
    """Interrupted: what was judged on the right one is there again, as it was; test_left_to_judge.py has the rest."""
    folder, problem = tmp_path / "mistyped", tmp_path / "mistyped_problems/1_Softmax.py"
    write(problem.parent, folder)
    for path in folder.glob("level_0_problem_*_sample_[!17]_kernel.py"):
        path.unlink()
    finish(start("mistyped"))
    with Ledger(folder) as ledger:
        right = ledger.judged()
    problem.write_text(PROBLEMS[problem.name] + "# another text\n")
    process = start("mistyped")
    assert process.stdout is not None
    assert "2 to judge; 2 of them have a verdict" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    finish(process, 128 + signal.SIGINT)
    with Ledger(folder) as ledger:
        assert ledger.judged() == right
    problem.write_text(PROBLEMS[problem.name])
    assert "0 to judge; 3 have a verdict" in finish(start("mistyped"))
    with Ledger(folder) as ledger:
        assert ledger.judged() == right


def test_what_kernelbench_judged_is_taken_and_said(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    write(tmp_path / "theirs_problems", folder)
    entry = {"compiled": True, "correctness": True, "runtime": 1.0, "metadata": {"hardware": "a GPU"}}
    results: dict[str, Any] = {}
    for problem, sample in SOLUTIONS:
        results.setdefault(str(problem), []).append({"sample_id": sample, **entry})
    (folder / "eval_results.json").write_text(json.dumps(results))
    assert "0 to judge; 12 are taken as KernelBench judged" in finish(start("theirs"))
    assert json.loads((folder / "eval_results.json").read_text()) == results


def test_a_strangers_message_cannot_repaint_the_terminal(capsys) -> None:
    with _Shown(Found((), (), ()), [], ["cpu"], 0, 0) as shown:
        shown.judged(judged(1, message="ValueError: \x1b[2J\u202e gone\nmore"), 0)
    out = capsys.readouterr().out
    assert "incorrect_value  ValueError: \\u001b[2J\\u202e gone  (1.0 s)" in out
    assert "\x1b" not in out and "more" not in out


def test_where_it_is_narrow_the_count_of_what_is_done_stays_whole() -> None:
    """Of 80 columns, words that took all but two left `2…` of the count."""
    solutions = tuple(Candidate(Key(1, n, 0), Source(Path("s.py"), "")) for n in range(2700))
    slots = [SimpleNamespace(phase="check")] * 8
    pipeline: Any = SimpleNamespace(work=SimpleNamespace(building=12), slots=slots)
    with _Shown(Found(solutions, (), ()), list(solutions[1234:]), ["cuda:0"], 0, 0) as shown:
        shown.look(pipeline)
        console = Console(width=80)
        with console.capture() as captured:
            console.print(shown._bar.get_renderable())
    text = captured.get()
    assert "1234/2700" in text and "12 building" in text and "…" not in text, text
    assert text.count("check") == 8


def test_how_fast_it_goes_and_how_long_it_takes_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten, four were judged before; two more in a minute, and one by another process."""
    now = [1000.0]
    monkeypatch.setattr(run.time, "monotonic", lambda: now[0])
    solutions = tuple(Candidate(Key(1, n, 0), Source(Path("s.py"), "")) for n in range(10))
    pipeline: Any = SimpleNamespace(work=SimpleNamespace(building=3), slots=[])
    with _Shown(Found(solutions, (), ()), list(solutions[4:]), ["cuda:0"], 0, 0) as shown:
        shown.look(pipeline)
        assert shown._bar.tasks[0].fields["said"] == "3 building", "nothing is known yet"
        now[0] += 60
        for _ in range(2):
            shown.judged(judged(1), 0)
        shown.elsewhere(solutions[9])
        shown.look(pipeline)
        assert shown._bar.tasks[0].fields["said"] == "3 building, 120 an hour, 0:01:00 left"
        assert shown._bar.tasks[0].completed == 7


@pytest.mark.parametrize(
    ("kind", "text", "misnamed", "said"),
    [
        (SandboxKind.BUBBLEWRAP, "load_inline()", (), []),
        (SandboxKind.NATIVE, "nothing", (), []),
        (SandboxKind.NATIVE, "load_inline()", (), ["1 solution builds an extension, where it is judged"]),
        (SandboxKind.BUBBLEWRAP, "", ("level_1.py",), ["level_1.py is no solution by its name; expected level_L"]),
        (SandboxKind.BUBBLEWRAP, "", ("a.py", "b.py", "c.py"), ["a.py, and 2 more, is no solution by its name"]),
    ],
)
def test_a_run_says_first_what_its_owner_may_not_think(
    kind: SandboxKind, text: str, misnamed: tuple[str, ...], said: list[str]
) -> None:
    found = Found((Candidate(Key(1, 1, 0), Source(Path("s.py"), text)),), 0, (), misnamed)
    lines = list(_warnings(found, kind))
    assert len(lines) == len(said) and all(line.startswith(start) for line, start in zip(lines, said, strict=True))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [((), "no solution"), (("--timeout", "build=3"), "--timeout 'build=3': expected"), (("--gpus", "x"), "'--gpus'")],
)
def test_usage(tmp_path: Path, kernelyard: Call, options: tuple[str, ...], wanted: str) -> None:
    write(tmp_path / "problems", tmp_path / "full")
    (tmp_path / "empty").mkdir()
    done = kernelyard("run", tmp_path / "empty", "--suite", tmp_path / "problems", *options, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and wanted in done.stderr


def test_the_help_tells_the_deadlines_that_are_in_force() -> None:
    assert TIMEOUT_HELP.endswith("by default compile=300, load=300, check=120, time=120.")
    for text in ("compile=300, load=300, check=120, time=120", "compile=300,load=300,check=120,time=120"):
        assert _deadlines(text) == _deadlines(None)


def test_a_device_on_which_the_sandbox_does_not_hold_gets_no_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of four GPUs three had no device inside, and every candidate that came by was an infra_error."""

    class Well:
        def refusal(self, device: torch.device) -> str | None:
            return f"{device} is quarantined" if device.index == 2 else None

    def standing(kind: SandboxKind, device: str) -> tuple[()]:
        if device == "cuda:1":
            raise SandboxError("the bubblewrap sandbox does not hold: device: cuInit returned 100")
        return ()

    monkeypatch.setattr(witness, "standing", standing)
    terms = SimpleNamespace(sandbox=SandboxKind.BUBBLEWRAP)
    said = [slot._unfit(Well(), torch.device("cuda", i), terms) for i in range(3)]  # type: ignore[arg-type]
    assert said == [
        "",
        "cuda:1: the bubblewrap sandbox does not hold: device: cuInit returned 100",
        "cuda:2 is quarantined",
    ]
