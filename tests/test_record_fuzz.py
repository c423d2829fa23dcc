"""Records read back from files that anybody may have written: valid, or refused in the documented way."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kernelyard.core.environment import describe, resolve_device
from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import SandboxRecord, Status, Timing, Verdict
from kernelyard.report import ledger

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FAILED = json.loads(
    Verdict(
        status=Status.CRASHED,
        problem="p.py",
        problem_sha256="0",
        solution="s.py",
        solution_sha256="1",
        dtype="float32",
        sandbox=SandboxRecord(kind="native"),
        environment=describe(resolve_device("cpu")),
    ).model_dump_json()
)
# A folder of its own for each example would cost more than the example.
QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@QUICK
@given(st.text())
def test_text_is_no_verdict(text: str) -> None:
    with pytest.raises(ValidationError):
        Verdict.model_validate_json(text)


@QUICK
@given(st.dictionaries(st.sampled_from(sorted(Verdict.model_fields)), JSON, min_size=1, max_size=4))
def test_a_verdict_with_anything_in_its_fields_claims_no_pass(changed: dict[str, object]) -> None:
    """A record of a crash, altered: what still reads as a verdict holds what every verdict does."""
    try:
        verdict = Verdict.model_validate(FAILED | changed)
    except ValidationError:
        return
    assert verdict.status is not Status.PASSED
    assert verdict.time is None and verdict.speedup is None


@QUICK
@given(st.sampled_from([status.value for status in Status]), st.floats(), st.floats(), st.floats())
def test_a_crash_relabelled_is_no_pass(status: str, mean: float, low: float, high: float) -> None:
    text = json.dumps(FAILED | {"status": status, "speedup": mean, "speedup_low": low, "speedup_high": high})
    with pytest.raises(ValidationError):
        Verdict.model_validate_json(text)


@QUICK
@given(st.lists(st.floats(), max_size=6), st.dictionaries(st.sampled_from(["p50_ms", "p20_ms", "p80_ms"]), JSON))
def test_a_timing_has_real_samples_and_its_own_quantiles(samples: list[float], said: dict[str, object]) -> None:
    """What a file says the quantiles are is not believed: they are made from the samples."""
    fields = {"samples_ms": samples, "timer": "host", "cache": "cold", **said}
    try:
        timing = Timing.model_validate(fields)
    except ValidationError:
        assert not samples or not all(math.isfinite(sample) and sample > 0 for sample in samples)
        return
    assert min(samples) <= timing.p20_ms <= timing.p50_ms * (1 + 1e-9) <= timing.p80_ms * (1 + 1e-9) ** 2
    assert timing.p80_ms <= max(samples) * (1 + 1e-9)


@QUICK
@given(st.binary(max_size=400))
def test_a_ledger_of_arbitrary_bytes_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bench.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        ledger.read(path)


@QUICK
@given(st.lists(st.lists(st.text(max_size=12), min_size=1, max_size=len(ledger.COLUMNS) + 2), max_size=4))
def test_rows_of_arbitrary_text_are_refused_or_numbers(tmp_path: Path, rows: list[list[str]]) -> None:
    path = tmp_path / "bench.csv"
    lines = [",".join(ledger.COLUMNS), *[",".join(cell.replace(",", " ") for cell in row) for row in rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace", newline="")
    try:
        frame = ledger.read(path)
    except UsageError:
        return
    assert all(frame[name].dtype == "float64" for name in ledger.NUMBERS)


@QUICK
@given(st.text(max_size=60))
def test_a_configuration_is_any_text(text: str) -> None:
    assert isinstance(ledger.config_of(text), dict) and isinstance(ledger.config_label(text), str)
