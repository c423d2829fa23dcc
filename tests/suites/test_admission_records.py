"""Records of admissions in a file: what was decided is looked at once, however often a run is cut off."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Call

from kernelyard.cli import problem as cli
from kernelyard.core.environment import Environment, describe
from kernelyard.core.problem import Source
from kernelyard.judge.admission import Admission, MutantRecord
from kernelyard.suites import degenerate
from kernelyard.suites.kernelbench import read_source
from kernelyard.suites.operators import operator_source

ROOT = Path(__file__).parents[2]
SOUND = (ROOT / "examples/judge/problem.py").read_text()
UNSOUND = SOUND.replace("torch.softmax(x, dim=-1)", "x - x")
HERE = describe(torch.device("cpu"))
GPUS = {
    name: HERE.model_copy(update={"device": "cuda:0", "device_name": name, "vendor": "cuda", "date": date})
    for name, date in {"H100": "2026-11-24T04:22:38+00:00", "H200": "2026-11-25T10:00:00+00:00"}.items()
}
KILLED = MutantRecord(name="zeros", outcome="killed", detail="first")
SURVIVED = MutantRecord(name="constant", outcome="survived")


def record_of(path: Path, environment: Environment = HERE, **changes: Any) -> Admission:
    source = read_source(path, "problem", "a problem")
    fields = {"problem": path.name, "problem_sha256": source.sha256, "dtype": "float32", "environment": environment}
    return Admission(**{**fields, "status": "valid", "mutants": (KILLED,), **changes})


def written(path: Path, *records: Admission, rest: str = "") -> Path:
    path.write_text("".join(f"{record.model_dump_json()}\n" for record in records) + rest)
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A level of two problems."""
    made = tmp_path / "level1"
    made.mkdir()
    (made / "1_sound.py").write_text(SOUND)
    (made / "2_unsound.py").write_text(UNSOUND)
    return made


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is looked at from now on, which takes no process and no time."""
    names: list[str] = []

    def admit_all(paths: Sequence[Path], *, environments: Sequence[Environment], **_: object) -> Iterator[Any]:
        for path in paths:
            names.append(path.name)
            yield path, record_of(path, environments[0])

    monkeypatch.setattr(cli, "admit_all", admit_all)
    return names


def test_what_was_decided_is_looked_at_once(folder: Path, kernelyard: Call, tmp_path: Path) -> None:
    """Not what could not be loaded, whose newer record counts; and what the files of a run hold is all there is."""
    loaded = tmp_path / "loaded"
    for name in ("1_sound.py", "2_unsound.py"):
        text = (folder / name).read_text()
        (folder / name).write_text(f"open({str(loaded)!r}, 'a').write({name!r} + ' ')\n{text}")
    (folder / "3_none.py").write_text("x = 1\n")
    document = tmp_path / "admission.md"
    document.write_text("<!-- admission:cpu:begin -->\n<!-- admission:cpu:end -->\n")
    words = ("problem", "check", folder, "--records", "r.jsonl", "--device", "cpu", "--json")

    done = kernelyard(*words, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    kept = lines_of(tmp_path / "r.jsonl")
    assert {(one["problem"], one["status"]) for one in kept} == {
        ("1_sound.py", "valid"), ("2_unsound.py", "invalid_problem"), ("3_none.py", "not_loaded")
    }  # fmt: skip
    assert {one["environment"]["device"] for one in kept} == {"cpu"}
    assert sorted(loaded.read_text().split()) == ["1_sound.py", "2_unsound.py"]

    (folder / "3_none.py").write_text(SOUND + "\n")
    done = kernelyard(*words, "--table", document, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert sorted(loaded.read_text().split()) == ["1_sound.py", "2_unsound.py"], "looked at again"
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [one["status"] for one in said] == ["valid", "invalid_problem", "valid"]
    assert [one["problem"] for one in lines_of(tmp_path / "r.jsonl")[3:]] == ["3_none.py"]
    assert "| level1 | 3 | 2 | 1 | 0 |" in document.read_text()

    (folder / "2_unsound.py").unlink()
    assert kernelyard(*words, cwd=tmp_path).returncode == 0, "a record of a file that was not named"


def test_another_text_and_another_dtype_are_looked_at(
    folder: Path, kernelyard: Call, looked_at: list[str], tmp_path: Path
) -> None:
    first, second = sorted(folder.glob("*.py"))
    records = written(tmp_path / "r.jsonl", record_of(first), record_of(second))
    words = ("problem", "check", folder, "--records", records, "--device", "cpu")
    assert kernelyard(*words, cwd=tmp_path).returncode == 0 and not looked_at
    second.write_text(UNSOUND + "\n")
    assert kernelyard(*words, cwd=tmp_path).returncode == 0 and looked_at == ["2_unsound.py"]
    assert kernelyard(*words, cwd=tmp_path).returncode == 0 and looked_at == ["2_unsound.py"]
    kernelyard(*words, "--dtype", "bf16", cwd=tmp_path)
    assert looked_at == ["2_unsound.py", "1_sound.py", "2_unsound.py"]


def test_the_same_text_under_another_name_is_its_record(
    folder: Path, kernelyard: Call, looked_at: list[str], tmp_path: Path
) -> None:
    records = written(tmp_path / "r.jsonl", *map(record_of, folder.glob("*.py")))
    (folder / "2_unsound.py").rename(folder / "7_renamed.py")
    done = kernelyard("problem", "check", folder, "--records", records, "--device", "cpu", cwd=tmp_path)
    assert "7_renamed.py: valid" in done.stdout and not looked_at


@pytest.mark.parametrize("skipped_first", [True, False])
def test_what_was_skipped_is_looked_at_and_what_decides_counts(
    folder: Path, kernelyard: Call, looked_at: list[str], tmp_path: Path, skipped_first: bool
) -> None:
    first, second = sorted(folder.glob("*.py"))
    skipped = {"status": "skipped", "reason": "too large for this machine", "mutants": ()}
    both = [record_of(second, **skipped), record_of(second)]
    records = written(tmp_path / "r.jsonl", record_of(first, **skipped), *(both if skipped_first else both[::-1]))
    done = kernelyard("problem", "check", folder, "--records", records, "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0 and looked_at == ["1_sound.py"], done.stderr


def test_the_newest_of_two_that_decide_counts(
    folder: Path, kernelyard: Call, looked_at: list[str], tmp_path: Path
) -> None:
    first, _ = sorted(folder.glob("*.py"))
    invalid = {"status": "invalid_problem", "reason": "cannot tell", "mutants": (SURVIVED,)}
    records = written(tmp_path / "r.jsonl", record_of(first, **invalid), record_of(first))
    words = ("problem", "check", first, "--records", records, "--device", "cpu")
    assert "1_sound.py: valid" in kernelyard(*words, cwd=tmp_path).stdout
    written(records, record_of(first), record_of(first, **invalid))
    assert kernelyard(*words, cwd=tmp_path).returncode == 1 and not looked_at


def test_a_table_of_another_machines_records_is_made_anew(
    folder: Path, kernelyard: Call, looked_at: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its marks; every environment is named, with how many problems were looked at there."""
    marks = tmp_path / "marks.json"
    marks.write_text("{}")
    monkeypatch.setattr(degenerate, "TABLE", marks)
    first, second = sorted(folder.glob("*.py"))
    invalid = {"status": "invalid_problem", "reason": "cannot tell: constant", "mutants": (KILLED, SURVIVED)}
    sound = record_of(first, GPUS["H100"])
    records = written(tmp_path / "r.jsonl", sound, record_of(second, GPUS["H100"], **invalid))
    document = tmp_path / "admission.md"
    document.write_text("<!-- admission:cuda:begin -->\n<!-- admission:cuda:end -->\n")
    words = ("problem", "check", folder, "--records", records, "--device", "cpu", "--table", document, "--mark")
    assert kernelyard(*words, cwd=tmp_path).returncode == 1 and not looked_at
    text = document.read_text()
    assert f"begin -->\n\nOn {GPUS['H100'].line}; float32.\n\n| suite |" in text
    assert "| 2_unsound | invalid_problem | 1 of 2 | cannot tell: constant |" in text
    found = {mark["problem"]: mark["reasons"]["float32"] for mark in json.loads(marks.read_text()).values()}
    assert found == {"1_sound.py": "", "2_unsound.py": "cannot tell: constant"}

    (folder / "3_more.py").write_text(SOUND + "\n")
    records.write_text(records.read_text() + record_of(folder / "3_more.py", GPUS["H200"]).model_dump_json() + "\n")
    assert kernelyard(*words, cwd=tmp_path).returncode == 1 and not looked_at
    places = f"In float32:\n\n- 2 problems on {GPUS['H100'].line}\n- 1 problem on {GPUS['H200'].line}\n\n| suite |"
    assert places in document.read_text()

    (folder / "4_left.py").write_text(SOUND + "\n\n")
    done = kernelyard(*words, cwd=tmp_path)
    assert done.returncode == 2 and not looked_at
    assert len(done.stderr.splitlines()) == 1
    assert "r.jsonl: holds records of cuda, and 1 more would be of cpu; expected" in done.stderr


def test_what_a_kill_cut_short_is_said_and_made_again(
    folder: Path, kernelyard: Call, looked_at: list[str], tmp_path: Path
) -> None:
    first, second = sorted(folder.glob("*.py"))
    cut = record_of(second).model_dump_json()[:-40]
    records = written(tmp_path / "r.jsonl", record_of(first), rest=cut)
    done = kernelyard("problem", "check", folder, "--records", records, "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0 and looked_at == ["2_unsound.py"]
    assert done.stderr == f"{records}: its last line was cut short and is left out\n"
    assert [one["problem"] for one in lines_of(records)] == ["1_sound.py", "2_unsound.py"]


def test_operators_are_kept_by_their_definition(
    kernelyard: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def admit(made: Any, *, environment: Environment, **_: object) -> Admission:
        asked.append(made.source.name)
        fields = {"problem": made.source.name, "problem_sha256": made.source.sha256, "dtype": "float32"}
        return Admission(**fields, environment=environment, status="valid", mutants=(KILLED,))

    monkeypatch.setattr(cli, "admit", admit)
    words = ("problem", "check", "--op", "softmax", "--op", "rope", "--records", "r.jsonl", "--device", "cpu")
    for _ in range(2):
        assert kernelyard(*words, cwd=tmp_path).returncode == 0
        assert asked == ["softmax.py", "rope.py"]

    def changed(name: str, dtype: str, device_type: str) -> Source:
        return operator_source(name, dtype, "cuda" if name == "rope" else device_type)

    monkeypatch.setattr(cli, "operator_source", changed)
    assert kernelyard(*words, cwd=tmp_path).returncode == 0
    assert asked == ["softmax.py", "rope.py", "rope.py"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("nonsense\n", "r.jsonl:1: no admission (Invalid JSON"),
        ("{}\n", "r.jsonl:1: no admission (problem: Field required); expected what `kernelyard problem check"),
        ("\n{}\n", "r.jsonl:1: no admission (Invalid JSON"),
    ],
)
def test_a_file_of_something_else_is_refused_in_a_line(
    content: str, complaint: str, folder: Path, kernelyard: Call, looked_at: list[str], tmp_path: Path
) -> None:
    (tmp_path / "r.jsonl").write_text(content)
    done = kernelyard("problem", "check", folder, "--records", "r.jsonl", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 2 and complaint in done.stderr and len(done.stderr.splitlines()) == 1
    assert not looked_at and (tmp_path / "r.jsonl").read_text() == content


def test_a_place_that_holds_no_records_is_refused_before_anything_is_looked_at(
    folder: Path, kernelyard: Call, looked_at: list[str], tmp_path: Path
) -> None:
    first, second = folder.glob("*.py")
    mixed = written(tmp_path / "mixed.jsonl", record_of(first), record_of(second, GPUS["H100"]))
    for name, complaint in {
        str(folder): "is no file", "none/r.jsonl": "there is no such folder", "/dev/null": "is no file",
        str(mixed): "holds records of cpu and cuda",
    }.items():  # fmt: skip
        done = kernelyard("problem", "check", folder, "--records", name, "--device", "cpu", cwd=tmp_path)
        assert done.returncode == 2 and complaint in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert not looked_at


def test_what_a_file_says_cannot_repaint_a_terminal_or_a_table(
    folder: Path, kernelyard: Call, looked_at: list[str], tmp_path: Path
) -> None:
    first, _ = sorted(folder.glob("*.py"))
    hostile = {
        "status": "invalid_problem", "reason": "\x1b[2Jcannot\n1_sound.py: valid | yes",
        "mutants": (SURVIVED.model_copy(update={"name": "a|b\nc\x1b"}),),
    }  # fmt: skip
    place = GPUS["H100"].model_copy(update={"device_name": "H\n100\x1b"})
    records = written(tmp_path / "r.jsonl", record_of(first, place, **hostile))
    document = tmp_path / "admission.md"
    document.write_text("<!-- admission:cuda:begin -->\n<!-- admission:cuda:end -->\n")
    words = ("problem", "check", first, "--records", records, "--device", "cpu", "--table", document)
    done = kernelyard(*words, cwd=tmp_path)
    said, text = done.stdout, document.read_text()
    assert done.returncode == 1 and "\x1b" not in said + text
    assert said.splitlines()[0].endswith("cannot 1_sound.py: valid | yes")
    assert "cannot 1_sound.py: valid / yes |" in text and "| a/b c" in text and "\nOn H 100" in text
