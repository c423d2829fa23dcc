"""Files and reports that anybody may have written, read back: a record, or the refusal that the reader documents."""

import json
import os
import sqlite3
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kernelyard.campaign import baselines, kernelbench_files
from kernelyard.campaign.ledger import FILE_NAME, Ledger
from kernelyard.campaign.records import Foreign, Judged, Key, Settings
from kernelyard.core.environment import describe, resolve_device
from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Timing
from kernelyard.judge.admission import Admission, MutantRecord
from kernelyard.judge.sanitizing import findings
from kernelyard.report.admission import admission_lines, admission_table
from kernelyard.report.untrusted import visible
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.listener import Listener
from kernelyard.sandbox.watch import Exceeded
from kernelyard.suites.admission_records import AdmissionRecords

# Half of a surrogate pair is JSON's to write, and no reader's to store.
TEXT = st.text(st.characters(), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CONTENT = st.binary(max_size=200) | JSON.map(json.dumps).map(str.encode)
DEEP = b"[" * 100_000
TIMING = Timing(samples_ms=(1.0, 2.0), timer="host", cache="cold")
BASELINE = json.loads(
    baselines.Baseline(
        level=1,
        problem=1,
        problem_name="1_x.py",
        problem_sha256="0",
        dtype="float32",
        times=dict.fromkeys(baselines.Variant, TIMING),
        failures={},
        environment=describe(resolve_device("cpu")),
        seconds=1.0,
    ).model_dump_json()
)
ADMISSION = json.loads(
    Admission(
        problem="p.py",
        problem_sha256="0",
        dtype="float32",
        environment=describe(resolve_device("cpu")),
        status="valid",
        mutants=(MutantRecord(name="zeros", outcome="killed", detail="first"),),
    ).model_dump_json()
)
# A folder of its own for each example would cost more than the example.
FEW = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def one_line(error: UsageError) -> None:
    assert len(str(error).splitlines()) == 1


def look(folder: Path) -> None:
    """Everything that is read from a ledger."""
    try:
        with Ledger(folder) as ledger:
            assert ledger.settings is None or isinstance(ledger.settings, Settings)
            assert all(isinstance(one, Judged) for one in ledger.judged())
            assert all(isinstance(one, Foreign) for one in ledger.foreign())
    except UsageError as error:
        one_line(error)


@FEW
@given(st.binary(max_size=400), st.booleans())
def test_a_run_ledger_of_any_bytes(tmp_path: Path, content: bytes, headed: bool) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"SQLite format 3\0" * headed + content)
    look(tmp_path)


@FEW
@given(st.sampled_from(["meta", "verdicts", "leases", "foreign_outcomes"]), st.integers(0, 3))
def test_a_run_ledger_with_another_schema(tmp_path: Path, table: str, version: int) -> None:
    path = tmp_path / FILE_NAME
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(f"CREATE TABLE {table} (other TEXT); PRAGMA user_version = {version};")
    connection.close()
    look(tmp_path)


@FEW
@given(CONTENT)
def test_a_run_ledger_with_anything_for_a_verdict(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).unlink(missing_ok=True)
    Ledger(tmp_path, create=True).close()
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    # As text, whose bytes SQLite does not look at.
    connection.execute("INSERT INTO verdicts VALUES (1, 1, 1, '', '', '', 'passed', CAST(? AS TEXT))", (content,))
    connection.commit()
    connection.close()
    look(tmp_path)


ROWS = {
    "meta": "('settings', CAST(? AS TEXT))",
    "verdicts": "(1, 1, 1, '', '', '', CAST(? AS TEXT), '{}')",
    "leases": "(1, 1, 1, 'host', 1, 1, CAST(? AS TEXT))",
    "foreign_outcomes": "(1, 1, 1, CAST(? AS TEXT))",
}


@FEW
@given(st.sampled_from(sorted(ROWS)), CONTENT)
def test_a_run_ledger_with_anything_in_its_rows(tmp_path: Path, table: str, content: bytes) -> None:
    (tmp_path / FILE_NAME).unlink(missing_ok=True)
    Ledger(tmp_path, create=True).close()
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute(f"INSERT INTO {table} VALUES {ROWS[table]}", (content,))
    connection.commit()
    connection.close()
    look(tmp_path)
    for ask in (Ledger.stands, Ledger.lease):
        try:
            with Ledger(tmp_path) as ledger:
                ask(ledger, Key(1, 1, 1))
        except UsageError as error:
            one_line(error)


def test_a_number_that_no_ledger_holds_is_one_line(tmp_path: Path) -> None:
    with Ledger(tmp_path, create=True) as ledger, pytest.raises(UsageError, match="cannot be used") as raised:
        ledger.take_over([Foreign(level=1, problem=1, sample=10**30, outcome={})])
    one_line(raised.value)


# Entries that are nearly KernelBench's, which random JSON never is.
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "sample_id": st.integers() | JSON,
        "compiled": st.booleans() | JSON,
        "correctness": st.booleans() | JSON,
        "runtime": st.floats() | JSON,
        "metadata": JSON,
    },
)
RESULTS = st.dictionaries(st.integers().map(str) | TEXT, st.lists(ENTRY, max_size=2) | ENTRY, max_size=3)
MEANS = st.dictionaries(TEXT, st.dictionaries(TEXT, st.fixed_dictionaries({"mean": st.floats() | JSON})), max_size=3)


@FEW
@given(CONTENT | RESULTS.map(json.dumps).map(str.encode))
def test_results_of_kernelbenchs_of_any_content(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / kernelbench_files.RESULTS
    path.write_bytes(content)
    try:
        entries = [each for found in kernelbench_files.read(path).values() for each in found]
        assert all(isinstance(each["sample_id"], int) and isinstance(each["runtime"], (int, float)) for each in entries)
        kernelbench_files.foreign_outcomes(tmp_path, [1])
    except UsageError as error:
        one_line(error)


@FEW
@given(st.dictionaries(st.sampled_from(sorted(baselines.Baseline.model_fields)), JSON, max_size=2))
def test_a_baseline_with_anything_in_its_fields(tmp_path: Path, changed: dict[str, object]) -> None:
    (tmp_path / baselines.LEDGER).write_text(json.dumps(BASELINE | changed) + "\n")
    try:
        (entry,) = baselines.BaselineFolder.read(tmp_path).entries
        assert entry.best in (None, *entry.times)
    except UsageError as error:
        one_line(error)


@FEW
@example(DEEP, True)
@given(CONTENT, st.booleans())
def test_a_ledger_of_baselines_of_any_content(tmp_path: Path, content: bytes, whole: bool) -> None:
    (tmp_path / baselines.LEDGER).write_bytes(content + b"\n" * whole)
    try:
        assert all(isinstance(each, baselines.Baseline) for each in baselines.BaselineFolder.read(tmp_path).entries)
    except UsageError as error:
        one_line(error)


@FEW
@given(st.dictionaries(st.sampled_from(sorted(Admission.model_fields)), JSON, max_size=2))
def test_an_admission_with_anything_in_its_fields(tmp_path: Path, changed: dict[str, object]) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(ADMISSION | changed) + "\n")
    try:
        AdmissionRecords.read(path)
    except UsageError as error:
        one_line(error)
        return
    record = Admission.model_validate_json(path.read_text())
    said = "\n".join([*admission_lines(record), admission_table({"level1": [record]})])
    assert said == visible(said, len(said))


@FEW
@example(DEEP, True)
@given(CONTENT, st.booleans())
def test_a_file_of_admissions_of_any_content(tmp_path: Path, content: bytes, whole: bool) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(content + b"\n" * whole)
    try:
        records = AdmissionRecords.read(path)
        assert records.device_type is None and records.cut_short is not (whole or content[-1:] in (b"", b"\n"))
    except UsageError as error:
        one_line(error)


@FEW
@example(DEEP)
@example(b'{"level1": {"1_x.py": {"mean": 1%s}}}' % (b"0" * 400))
@given(CONTENT | MEANS.map(json.dumps).map(str.encode))
def test_baselines_of_kernelbenchs_of_any_content(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "baseline_time_torch.json"
    path.write_bytes(content)
    try:
        means = baselines.read_kernelbench(path).means
        assert all(0 < mean < float("inf") for level in means.values() for mean in level.values())
    except UsageError as error:
        one_line(error)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@FEW
@example(DEEP[:60_000])
@given(CONTENT | st.lists(JSON, min_size=2, max_size=2).map(json.dumps).map(str.encode))
def test_last_words_of_any_content(words: bytes) -> None:
    """A keeper's words are what its tree could make of them; the thread that hears them ends, and kills nobody."""
    pipes = [os.pipe() for _ in range(3)]
    (out, _), (err, _), (lifeline, _) = pipes
    killed: list[None] = []
    listener = Listener(streams=(out, err), lifeline=lifeline, limits=Limits(), kill=lambda: killed.append(None))
    os.write(pipes[2][1], words)
    for _, end in pipes:
        os.close(end)
    listener.join(10)
    os.close(lifeline)
    assert not listener._thread.is_alive() and not killed
    assert listener.exceeded in (None, *get_args(Exceeded)) and isinstance(listener.peak_memory_bytes, int)


MARKED = st.lists(
    st.sampled_from(["\n=========", " ERROR SUMMARY: 0 errors", " ERROR SUMMARY: x", " ERROR SUMMARY:", " Invalid"])
    | TEXT
)


@FEW
@given(MARKED.map("".join))
def test_a_sanitizers_report_of_any_content(report: str) -> None:
    found = findings(report)
    assert found is None or (found and len(found.splitlines()) == 1)
