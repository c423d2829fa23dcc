"""The verbs at work, as a user runs them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelyard import ops
from kernelyard.cli.check import check
from kernelyard.core.verdict import Verdict
from kernelyard.ladder.record import Ladder

ROOT = Path(__file__).parents[2]
JUDGE = ROOT / "examples/judge"


def kernelyard(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernelyard", *arguments], cwd=cwd, capture_output=True, text=True, timeout=240
    )


def test_eval_prints_the_verdict_and_the_record_last() -> None:
    least = ["--rounds", "3", "--budget", "0"]
    done = kernelyard("eval", str(JUDGE / "problem.py"), str(JUDGE / "correct.py"), "--json", *least)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    assert lines[0] == "correct.py on problem.py: passed"
    verdict = Verdict.model_validate_json(last)
    record = json.loads(last)
    assert record["status"] == "passed" and record["speedup"] == verdict.speedup and record["flags"] == []
    assert verdict.floor is not None and verdict.time is not None and verdict.percent_of_floor is not None
    assert verdict.percent_of_floor == pytest.approx(100 * verdict.floor.floor_ms / verdict.time.p50_ms)


def test_eval_says_no_with_exit_code_1() -> None:
    done = kernelyard("eval", str(JUDGE / "problem.py"), str(JUDGE / "wrong.py"), "--json")
    assert done.returncode == 1
    assert re.search(r"output: \d+ of 32000 elements differ", done.stdout)
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["status"] == "incorrect_value" and record["speedup"] is None and record["time"] is None


def test_of_an_answer_that_is_no_python_eval_has_a_record_as_a_run_has(tmp_path: Path) -> None:
    answer = tmp_path / "answer.py"
    answer.write_text("Here is the kernel:\nclass ModelNew: ...\n")
    done = kernelyard("eval", str(JUDGE / "problem.py"), str(answer), "--json")
    assert done.returncode == 1
    assert done.stdout.startswith("answer.py on problem.py: compile_error in phase compile")
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "compile_error"


def test_eval_has_a_deadline_for_each_phase(tmp_path: Path) -> None:
    """Its import takes longer than a checked request may, and then it does not come back."""
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time, torch\ntime.sleep(3)\n"
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        time.sleep(60)\n"
    )
    limits = ("--timeout", "30", "--check-timeout", "2")
    done = kernelyard("eval", str(JUDGE / "problem.py"), str(slow), "--device", "cpu", *limits)
    assert done.returncode == 1
    assert "slow.py on problem.py: timeout in phase check" in done.stdout and "within 2 s" in done.stdout


def test_ladder_puts_the_floor_before_the_measurements_and_json_last() -> None:
    backends = ("--backend", "eager", "--backend", "triton")
    done = kernelyard("ladder", "softmax", "--shape", "16x200", "--dtype", "fp32", *backends)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "softmax forward 16x200 float32"
    assert lines[1].startswith("read 12.8 kB + write 12.8 kB = 25.6 kB") and "bound: memory" in lines[1]
    assert lines[2].startswith("floor ")
    ladder = Ladder.model_validate_json(lines[-1])
    assert [row.backend for row in ladder.rows] == ["eager", "triton"]
    assert all(row.status == "passed" and row.time is not None and row.lines_of_code > 0 for row in ladder.rows)
    assert ladder.floor.bytes == 2 * 16 * 200 * 4


def test_check_proves_one_shape() -> None:
    done = kernelyard("check", "softmax", "--shape", "3x1023", "--dtype", "bf16", "--backend", "triton")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "triton" in done.stdout


def test_check_proves_a_dtype_that_is_named_twice_once(capsys: pytest.CaptureFixture[str]) -> None:
    check("softmax", backend=["eager"], dtype=["fp32", "float32"], shape="2x3", device="cpu")
    assert re.search(r"^ *eager +1 +0 +0 ", capsys.readouterr().out, re.MULTILINE)


def test_list_names_every_operator_and_backend() -> None:
    done = kernelyard("list")
    for name in ops.operator_names():
        assert name in done.stdout
        assert all(backend.value in done.stdout for backend in ops.backends(name))
        # Word by word, for a summary is wrapped: [target] was once taken for a style.
        assert all(word in done.stdout for word in ops.definition(name).summary.split())


def test_doctor_shows_a_witness_for_every_layer() -> None:
    done = kernelyard("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    for layer in ("environment", "read", "write", "network", "ptrace", "memory", "daemon"):
        assert re.search(rf"^ ?{layer} +yes ", done.stdout, re.MULTILINE), layer
    assert re.search(r"copy +[\d.]+ GB/s measured", done.stdout)
    assert "compiles for sm_75, sm_80, sm_90a" in done.stdout
