"""Admission: a sound problem kills every mutant, an unsound one is told apart by name."""

import json
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from kernelyard.cli import problem as cli
from kernelyard.core.environment import describe
from kernelyard.core.problem import Problem
from kernelyard.judge.admission import Admission, MutantRecord, admit
from kernelyard.judge.exam import Exam
from kernelyard.judge.question import Question
from kernelyard.judge.reference import InvalidProblem
from kernelyard.judge.size import NO_ROOM, too_large
from kernelyard.report.admission import admission_table
from kernelyard.suites import degenerate
from kernelyard.suites.admission import admit_all, problem_files
from kernelyard.suites.kernelbench import MAX_SOURCE_BYTES

sys.path.insert(0, str(Path(__file__).parent))
from honest import CASES, problem, rows

HERE = describe(torch.device("cpu"))
ROOT = Path(__file__).parents[2]


def admitted(made: Problem, dtype: torch.dtype = torch.float32, seconds: float = 60.0) -> Admission:
    return admit(made, environment=HERE, dtype=dtype, memory_bytes=1 << 30, seconds=seconds)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "matmul", "gelu", "relu", "conv", "cosine", "loss"])
def test_a_sound_problem_is_valid(name: str) -> None:
    record = admitted(problem(*CASES[name][:2]))
    assert record.status == "valid", record.reason
    assert record.kill_rate == 1.0
    assert {"zeros", "constant", "first_answer", "bf16", "fp16"} <= set(record.named("killed"))


@pytest.mark.parametrize(
    ("call", "inputs", "survivor"),
    [
        (lambda x: (x - x).relu(), rows(8, 64), "zeros"),
        (lambda x: torch.ones_like(x) * 0.3, rows(8, 64), "constant"),
        (lambda x: torch.ones_like(x).cumsum(-1), rows(8, 64), "first_answer"),
    ],
)
def test_an_unsound_problem_is_invalid_and_says_why(call: object, inputs: object, survivor: str) -> None:
    record = admitted(problem(call, inputs))  # type: ignore[arg-type]
    assert record.status == "invalid_problem"
    assert survivor in record.named("survived") and survivor in record.reason
    assert record.kill_rate is not None and record.kill_rate < 1


def test_uniform_inputs_alone_would_not_miss_a_relu() -> None:
    """Only stresses that make inputs negative tell relu from the identity; without them the problem is unsound."""
    identity = next(m for m in admitted(problem(*CASES["relu"][:2])).mutants if m.name == "identity")
    assert (identity.outcome, identity.detail) == ("killed", "signs")
    declined = admitted(problem(*CASES["relu"][:2], no_stress=frozenset({"signs", "outliers"})))
    mutant = next(m for m in declined.mutants if m.name == "identity")
    assert mutant.outcome == "not_applicable" and mutant.detail == "equals the reference"


class Unlooked(nn.Module):
    """Leaves the last column out, and adds up in another order each time, as some convolutions of a GPU do."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        columns = x[:, :-1].roll(self.calls, 1).unbind(1)
        return sum(columns[1:], start=columns[0])


def test_what_the_reference_does_not_look_at_is_left_out_by_no_mutant() -> None:
    """KernelBench's 2/78 pools the last column away; by its bits it was another answer, on an H100."""
    record = admitted(problem(Unlooked(), rows(64, 129)))
    (mutant,) = [one for one in record.mutants if one.name == "last_ignored"]
    assert mutant.outcome == "not_applicable" and mutant.detail == "equals the reference"
    assert record.status == "valid", record.reason


def test_what_does_not_apply_is_counted_apart() -> None:
    record = admitted(problem(lambda x: x.clone(), rows(8, 64)))
    by_name = {mutant.name: mutant for mutant in record.mutants}
    assert by_name["identity"].detail == "equals the reference"
    assert by_name["other_weights"].detail == "the problem has no weights"
    assert record.status == "valid"
    half = admitted(problem(*CASES["softmax"][:2]), torch.bfloat16)
    assert {m.detail for m in half.mutants if m.name in ("bf16", "fp16")} == {"the problem is in half precision"}
    assert half.status == "valid", half.reason


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(16, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


class Dropped(Normed):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(super().forward(x), 0.5, training=True)


def weighted(model: type[nn.Module]) -> Problem:
    base = problem(torch.relu, rows(32, 16))
    return Problem(base.source, model, base.get_inputs, base.get_init_inputs)


def test_weights_left_out_are_mutants() -> None:
    record = admitted(weighted(Normed))
    assert record.status == "valid", record.reason
    assert {"other_weights", "default_weights"} <= set(record.named("killed"))


def test_a_reference_that_disagrees_with_itself() -> None:
    record = admitted(weighted(Dropped))
    assert record.status == "invalid_problem" and "the reference draws random numbers" in record.reason
    record = admitted(problem(lambda x: (x + 1e9) - 1e9, rows(8, 64)))
    assert record.status == "invalid_problem" and "the honest answer is itself off by" in record.reason


def test_rows_that_depend_on_one_another_are_not_cut_in_halves() -> None:
    assert admitted(problem(lambda x: x - x.mean(0), rows(32, 16))).status == "valid"


def test_bounds_of_time_and_memory() -> None:
    hopeless = problem(lambda x: (x - x).relu(), rows(8, 64))
    assert admitted(hopeless, seconds=0.0).reason.startswith("no time left to decide on")
    huge = problem(torch.relu, lambda: [torch.rand(1 << 20, 1 << 20)])
    record = admitted(huge)
    assert record.status == "skipped" and record.reason.startswith("too large for this machine: about")
    # As many inputs as answers: those of two questions, and float64's answer with inputs and answer of half the rows.
    small, device = problem(torch.relu, rows(8, 64)), torch.device("cuda")
    assert too_large(small, torch.float32, device, 16 * 1024) == ""
    assert too_large(small, torch.float32, device, 16 * 1024 - 1).startswith("too large for this machine: about")


@pytest.mark.parametrize("steps", [(2.0,), (2.0**-40, 2.0)], ids=["changed once", "changed again"])
def test_of_the_first_question_only_what_is_still_asked_for_stays(
    steps: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its float64 answer lay beside every later question, and each question beside the next: 104 GiB of 6 GiB."""
    tensors: list[weakref.ref[Tensor]] = []
    alive: list[int] = []
    ask = Exam.question

    def question(exam: Exam, arguments: list[Any] | None = None) -> Question:
        alive.append(sum(tensor() is not None for tensor in tensors))
        made = ask(exam, arguments)
        tensors.extend(map(weakref.ref, (*made.arguments, *made.reference, *made.honest)))
        return made

    monkeypatch.setattr(Exam, "question", question)
    monkeypatch.setattr("kernelyard.judge.stress.STEPS", steps)
    record = admitted(problem(torch.relu, rows(8, 64)))
    assert record.status == "valid" and "one_element" in record.questions
    before = 1 + len(steps)  # its input and its answer, for the second question and for each change of one element
    assert alive == [0, *[2] * before, *[0] * (len(alive) - 1 - before)] and len(alive) > 8


PARAGRAPH = (
    "CUDA out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 11.32 GiB is"
    " free. Process 3148 has 1.15 GiB memory in use. If reserved but unallocated memory is large try setting another"
)


def full(monkeypatch: pytest.MonkeyPatch, name: str, asked: int, error: Exception) -> None:
    """From the call of that number on, this method of an exam has no memory."""
    method, calls = getattr(Exam, name), iter(range(1, 1000))

    def counted(*given: Any) -> Any:
        if next(calls) >= asked:
            raise error
        return method(*given)

    monkeypatch.setattr(Exam, name, counted)


def test_no_room_is_one_short_clause(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (torch.OutOfMemoryError(PARAGRAPH), InvalidProblem(f"the reference fails: {PARAGRAPH}")):
        with monkeypatch.context() as patched:
            full(patched, "question", 2, error)
            record = admitted(problem(torch.relu, rows(8, 64)))
        assert record.status == "skipped" and record.questions == ("first",)
        assert record.reason == "too large for this machine: over 1 GB to check it"
    for error in (torch.OutOfMemoryError(PARAGRAPH), InvalidProblem(f"the reference fails: {PARAGRAPH}")):
        with monkeypatch.context() as patched:
            full(patched, "question", 3, error)
            record = admitted(problem(*CASES["softmax"][:2]))
        assert record.status == "valid", record.reason
        assert len(record.skipped) == 9 and set(record.skipped.values()) == {"the device's memory does not hold it"}


def test_what_no_question_with_room_killed_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stress might have told it from the reference."""
    full(monkeypatch, "question", 3, torch.OutOfMemoryError(PARAGRAPH))
    record = admitted(problem(lambda x: torch.ones_like(x).cumsum(-1), rows(8, 64)))
    assert record.status == "skipped"
    assert record.reason == "too large for this machine: over 1 GB to check it; undecided: first_answer"


def test_a_model_that_knows_its_batch_is_not_asked_by_halves() -> None:
    """einsum says that extents differ with a ValueError, which ended the process of two of KernelBench's problems."""

    def mixed(x: Tensor) -> Tensor:
        if x.shape[0] != 32:
            raise ValueError("operand 1 has size 16 for label b, expected 32")
        return x.softmax(-1)

    assert admitted(problem(mixed, rows(32, 64))).status == "valid"


def test_folders_are_read_in_order_and_judged_in_processes(tmp_path: Path) -> None:
    text = (ROOT / "examples/judge/problem.py").read_text()
    for name, body in {"10_softmax": text, "2_dies": f"import os\nos._exit(7)\n{text}", "3_bad": "x = 1\n"}.items():
        (tmp_path / f"{name}.py").write_text(body)
    files = problem_files([tmp_path])
    assert [path.stem for path in files] == ["2_dies", "3_bad", "10_softmax"]
    found = dict(admit_all(files, environments=[HERE, HERE], dtype="float32", seconds=60, jobs=1))
    assert [found[path].status for path in files] == ["skipped", "not_loaded", "valid"]
    assert "exit code 7" in found[files[0]].reason
    table = admission_table({"made up": [found[path] for path in files]})
    assert "| made up | 2 | 1 | 0 | 1 | 8 of 8, 100.0 % |" in table
    assert "| 3_bad | not_loaded | - | " in table
    assert "| 10_softmax | valid | 8 of 8 |  |" in table


def test_what_may_lack_room_is_tried_beside_ever_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten beside each other on an H100 one was refused by its own halves: its convolution lacked its workspace. And
    of nine 35 were valid whose stresses had no room."""
    enough = {"small": 10, "large": 3, "rounds_otherwise": 1, "huge": 0, "degenerate": 0, "half_asked": 10}
    reasons = {"rounds_otherwise": "the honest answer by halves fails", "degenerate": "cannot tell from the reference"}
    asked: list[tuple[int, list[str]]] = []

    def pooled(paths: Sequence[Path], _environments: object, dtype: str, _seconds: float, jobs: int) -> Iterator[Any]:
        asked.append((jobs, [path.name for path in paths]))
        for path in paths:
            status = "valid" if jobs <= enough[path.name] else "invalid_problem" if path.name in reasons else "skipped"
            reason = "" if status == "valid" else reasons.get(path.name, "too large for this machine: 1 GB")
            made = {"problem": path.name, "problem_sha256": "0", "dtype": dtype, "environment": HERE}
            made["mutants"] = (MutantRecord(name="zeros", outcome="killed"),)
            made["skipped"] = {"signs": NO_ROOM} if path.name == "half_asked" and jobs > 3 else {}
            yield path, Admission(**made, status=status, reason=reason)

    monkeypatch.setattr("kernelyard.suites.admission._pooled", pooled)
    told = admit_all([Path(name) for name in enough], environments=[HERE], dtype="float32", seconds=60, jobs=10)
    assert {path.name: record.status for path, record in told} == {
        "small": "valid", "large": "valid", "rounds_otherwise": "valid", "huge": "skipped",
        "degenerate": "invalid_problem", "half_asked": "valid",
    }  # fmt: skip
    assert asked == [
        (10, list(enough)), (3, ["large", "rounds_otherwise", "huge", "half_asked"]), (1, ["rounds_otherwise", "huge"])
    ]  # fmt: skip


def test_a_file_that_cannot_be_read_is_one_record_and_no_hang(tmp_path: Path) -> None:
    """Its record was made by reading it once more, which ended first the process and then the thread behind it."""
    binary, absent, large = (tmp_path / f"{name}.py" for name in ("binary", "absent", "large"))
    binary.write_bytes(b"\xff\xfe\x00")
    large.write_text("#" * (MAX_SOURCE_BYTES + 1))
    code = (
        "import torch; from pathlib import Path; from kernelyard.suites.admission import admit_all;"
        "from kernelyard.core.environment import describe;"
        f"paths = [Path(name) for name in {[str(binary), str(absent), str(large)]!r}];"
        "here = describe(torch.device('cpu'));"
        "[print(path.stem, record.status, record.reason) for path, record in"
        " admit_all(paths, environments=[here], dtype='float32', seconds=60, jobs=1)]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert set(said) == {"binary", "absent", "large"}
    for name, reason in {"binary": "cannot be read", "absent": "no such file", "large": "over 4 MiB"}.items():
        assert said[name].startswith("not_loaded ") and reason in said[name]


def test_a_failure_of_ours_ends_the_whole_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("kernelyard.suites.admission._Helper.admit", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        list(admit_all([Path("a.py")], environments=[HERE], dtype="float32", seconds=60, jobs=1))


def test_what_is_no_problem_is_said_and_not_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "marks.json"
    table.write_text("{}")
    monkeypatch.setattr(degenerate, "TABLE", table)
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "1_none.py").write_text((ROOT / "examples/judge/cached.py").read_text())
    (folder / "2_sound.py").write_text((ROOT / "examples/judge/problem.py").read_text())
    cli.check([folder], mark=True, device="cpu")
    said = capsys.readouterr().out
    assert "1_none.py: not_loaded: " in said and "no Model and no get_inputs" in said
    assert "2_sound.py: valid" in said
    assert [mark["problem"] for mark in json.loads(table.read_text()).values()] == ["2_sound.py"]
    with pytest.raises(typer.Exit) as end:
        cli.check([folder / "1_none.py", folder / "2_sound.py"], device="cpu")
    assert end.value.exit_code == 2, "one that was named is none"
    (folder / "2_sound.py").write_text("x = 1\n")
    with pytest.raises(typer.Exit) as end:
        cli.check([folder], mark=True, device="cpu")
    assert end.value.exit_code == 2, "nothing could be looked at"


def check(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernelyard", "problem", "check", *arguments],
        cwd=cwd, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def test_the_verb(tmp_path: Path) -> None:
    document = tmp_path / "admission.md"
    document.write_text("Before.\n\n<!-- admission:cpu:begin -->\n<!-- admission:cpu:end -->\n\nAfter.\n")
    example = str(ROOT / "examples/judge/problem.py")
    done = check(example, "--op", "rms_norm", "--json", "--device", "cpu", "--table", str(document), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *_, library, last = done.stdout.splitlines()
    assert json.loads(library)["problem"] == "rms_norm.py" and json.loads(last)["status"] == "valid"
    assert "  zeros            killed by first" in done.stdout
    assert "| library | 1 | 1 | 0 | 0 |" in document.read_text() and document.read_text().endswith("After.\n")

    unsound = tmp_path / "unsound.py"
    unsound.write_text(Path(example).read_text().replace("torch.softmax(x, dim=-1)", "x - x"))
    done = check(str(unsound), "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 1 and "unsound.py: invalid_problem: cannot tell from the reference: zeros" in done.stdout
    done = check(cwd=tmp_path)
    assert done.returncode == 2 and "expected problem files" in done.stderr


def test_ctrl_c_prints_what_was_found_and_enters_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(paths: Sequence[Path], **_: object) -> Iterator[tuple[Path, Admission]]:
        yield paths[0], admitted(problem(torch.relu, rows(8, 64)))
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "admit_all", interrupted)
    for name in "ab":
        (tmp_path / f"{name}.py").write_text((ROOT / "examples/judge/problem.py").read_text())
    document = tmp_path / "admission.md"
    document.write_text("<!-- admission:cpu:begin -->\n<!-- admission:cpu:end -->\n")
    with pytest.raises(KeyboardInterrupt):
        cli.check([tmp_path], json=True, table=document, device="cpu")
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[-1])["status"] == "valid"
    assert said.err.endswith("interrupted: 1 of 2 problems not looked at, no table written\n")
    assert document.read_text() == "<!-- admission:cpu:begin -->\n<!-- admission:cpu:end -->\n"
