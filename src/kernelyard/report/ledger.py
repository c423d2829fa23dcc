"""The benchmark ledger: a CSV of measurements that is added to, whole rows at a time, and never loses one."""

import csv
import fcntl
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.core.verdict import Record
from kernelyard.core.whole_file import check_place, named_by, write_whole


class BenchRow(Record):
    """One number of one backend at one size. The fields, in this order, are the columns of the CSV."""

    kernel_name: str
    kernel_provider: str
    """The backend or the foreign library that was measured, or `public`: the call that names no backend."""
    kernel_operation_mode: str
    metric_name: str
    """`speed`, `memory` or `host`: the host's time per call in inference."""
    metric_unit: str
    """`ms` for speed, `MB` (1e6 bytes) for memory, `us` for host."""
    x_name: str
    x_label: str
    x_value: int
    y_value_50: float
    y_value_20: float
    y_value_80: float
    extra_benchmark_config_str: str
    """JSON with sorted keys, made by `config_text`."""
    gpu_name: str
    timestamp: str
    """UTC, ISO 8601."""
    timer: str | None
    """The clock of a time; null for memory."""
    cache: str | None
    """`cold` or `warm`: whether the last-level cache was flushed before each call; null for memory."""
    bytes: int
    """The least bytes the call must move (speed, host), or must allocate (memory)."""
    copy_gbps: float | None
    """Speed only: a copy of equal bytes, timed between the backends' calls, in 1e9 bytes a second."""
    floor_ms: float | None
    """Speed only: the least time, from bytes and operations over the ceilings measured in the same run."""
    percent_of_floor: float | None
    """Speed only: 100 x `floor_ms` over the median; 100 is the speed of light."""
    datasheet_gbps: float | None
    """The device's memory bandwidth on paper, where it is known."""
    torch_version: str
    triton_version: str | None
    cuda_version: str | None
    driver: str | None
    kernelyard_version: str
    commit: str | None
    provider_version: str | None = None
    """Of a foreign library; null for what is this library's or torch's, and in rows of before 2026-11-25."""


DEFAULT_CSV = Path("benchmarks/results/bench.csv")
COLUMNS = tuple(BenchRow.model_fields)
SEED_COLUMNS = COLUMNS[:14]
"""What older ledgers hold; `plot` reads those too."""
BEFORE_VERSIONS = COLUMNS[:-1]
"""What ledgers of before 2026-11-25 hold: they get the last column when rows are added."""
KEY = (
    "kernel_name",
    "kernel_provider",
    "kernel_operation_mode",
    "metric_name",
    "x_name",
    "x_value",
    "extra_benchmark_config_str",
    "gpu_name",
)
"""What makes two rows measurements of the same thing."""
NUMBERS = (
    "x_value",
    "y_value_50",
    "y_value_20",
    "y_value_80",
    "bytes",
    "copy_gbps",
    "floor_ms",
    "percent_of_floor",
    "datasheet_gbps",
)
DTYPES = {name: "float64" if name in NUMBERS else "string" for name in COLUMNS}
"""Of a frame's columns; without them a commit of digits alone would be read as a number."""


def config_text(dtype: str, **options: Any) -> str:
    """What was held fixed over a sweep, as JSON with sorted keys: `{"dtype": "torch.bfloat16"}`."""
    return json.dumps({"dtype": f"torch.{dtype}", **options}, sort_keys=True)


def config_of(text: str) -> dict[str, Any]:
    """The options in a row's `extra_benchmark_config_str`; none where it holds no JSON object."""
    try:
        config = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return config if isinstance(config, dict) else {}


def config_label(text: str) -> str:
    """The same for a title: `bfloat16 dim=0`."""
    config = config_of(text)
    dtype = str(config.pop("dtype", "")).removeprefix("torch.")
    return " ".join([*[dtype] * bool(dtype), *(f"{key}={value}" for key, value in sorted(config.items()))]) or text


def providers(frame: pd.DataFrame) -> list[str]:
    """The providers in a frame, in order."""
    return in_order(frame["kernel_provider"].unique())


def in_order(names: Iterable[str]) -> list[str]:
    """The backends in the ladder's order, the public function, then the others by name."""
    ours = [*(backend.value for backend in Backend), "public"]
    return sorted(names, key=lambda name: (ours.index(name) if name in ours else len(ours), name))


_whole: dict[Path, int] = {}
"""Hash of the text with which a ledger was found whole, or left by `append`: to parse 5600 rows takes 70 ms, and a
benchmark adds to them after every point."""


def append(path: Path, rows: Sequence[BenchRow], *, overwrite: bool = False) -> None:
    """Adds rows to the CSV at `path`, creating it; with `overwrite`, older rows of the same keys go.

    A reader sees the file before or after, never between, and two writers at once both keep their rows.
    Raises UsageError where the file has other columns, or a row that is not whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _directory_lock(path.parent):
        kept = _existing_text(path)
        if overwrite:
            kept = _without(kept, {_key(row.model_dump()) for row in rows})
        text = kept + _csv_text([row.model_dump() for row in rows])
        write_whole(path, text)
        _whole[path] = hash(text)


def require_ledger(path: Path) -> None:
    """Raises UsageError where `append` would fail: before an hour of measuring, not after it."""
    if path.exists() and not path.is_file():
        said = "a folder" if path.is_dir() else "no file"
        raise UsageError(f"{path}: {said}; expected the CSV that rows are added to")
    if path.is_symlink():
        # A folder is made for a new name, and none for what a link names.
        check_place(path)
    _existing_text(path)
    folder = next(parent for parent in named_by(path).parents if parent.exists())
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"{path}: nothing can be written to {folder}: {error.strerror}") from None


def read(path: Path) -> pd.DataFrame:
    """All rows of the CSV at `path`, oldest first; columns that an older ledger lacks are filled with nulls.

    Raises UsageError where there is no such file, or it is no ledger.
    """
    if not path.is_file():
        said = "no file" if path.exists() else "no such file"
        raise UsageError(f"{path}: {said}; `kernelyard bench` writes one")
    return _frame(path, _text(path), (COLUMNS, BEFORE_VERSIONS, SEED_COLUMNS))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a ledger: it holds bytes that are no text") from None


def _frame(path: Path, text: str, headers: Sequence[tuple[str, ...]]) -> pd.DataFrame:
    """The rows in a ledger's text. Raises UsageError for other columns, and for a row that is not whole."""
    try:
        lines = [tuple(line) for line in csv.reader(io.StringIO(text)) if line]
    except csv.Error as error:
        raise UsageError(f"{path}: not a ledger: {error}") from None
    header, rows = (lines[0], lines[1:]) if lines else ((), [])
    if header not in headers:
        raise _foreign(path, header)
    # pandas fills a row that was cut, and makes an index of what one has too many.
    for place, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise UsageError(
                f"{path}: not a whole ledger: data row {place} has {len(row)} values; expected {len(header)}"
            )
    try:
        # Only what is empty is null: a device may be called NA.
        frame = pd.read_csv(io.StringIO(text), dtype="string", keep_default_na=False, na_values=[""])
        frame = frame.reindex(columns=list(COLUMNS)).astype(DTYPES)
    except ValueError as error:
        raise UsageError(f"{path}: not a whole ledger: {str(error).splitlines()[0]}") from None
    endless = np.isinf(frame.select_dtypes("number").to_numpy(dtype=float, na_value=0.0)).any(axis=1)
    if endless.any():
        raise UsageError(f"{path}: not a whole ledger: data row {endless.argmax() + 1} holds a number without end")
    broken = frame[list(SEED_COLUMNS)].isna().any(axis="columns")
    if broken.any():
        raise UsageError(f"{path}: not a whole ledger: data row {broken.argmax() + 1} lacks one of its first 14 values")
    return frame


def latest(frame: pd.DataFrame) -> pd.DataFrame:
    """The newest row of each key, by timestamp and then by place in the file."""
    when = pd.to_datetime(frame["timestamp"], format="ISO8601", utc=True, errors="coerce")
    in_order = frame.loc[when.sort_values(kind="stable", na_position="first").index]
    return in_order.drop_duplicates(subset=list(KEY), keep="last").sort_index()


@contextmanager
def _directory_lock(directory: Path) -> Iterator[None]:
    """Holds the directory itself locked, so that no lock file is left among the results."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _existing_text(path: Path) -> str:
    """The file's text, ready to be added to; only the header where there is no file yet."""
    text = _text(path) if path.exists() else ""
    if not text:
        return ",".join(COLUMNS) + "\n"
    if _whole.get(path) != hash(text):
        _frame(path, text, (COLUMNS, BEFORE_VERSIONS))
        text = _with_versions(text)
        _whole[path] = hash(text)
    return text if text.endswith("\n") else text + "\n"


def _with_versions(text: str) -> str:
    header, *rows = [line for line in csv.reader(io.StringIO(text)) if line]
    if tuple(header) == COLUMNS:
        return text
    return ",".join(COLUMNS) + "\n" + _csv_text([dict(zip(BEFORE_VERSIONS, row, strict=True)) for row in rows])


def _foreign(path: Path, header: tuple[str, ...]) -> UsageError:
    if header == SEED_COLUMNS:
        return UsageError(
            f"{path}: an older ledger of 14 columns, which can be plotted but not added to: use another --csv"
        )
    missing = [name for name in COLUMNS if name not in header]
    extra = [name for name in header if name not in COLUMNS]
    wrong = f"lacks {', '.join(missing)}" if missing else "has columns out of order"
    if extra:
        wrong = f"has {', '.join(map(repr, extra))}"
    return UsageError(f"{path}: not a ledger of benchmarks: {wrong}; expected {','.join(COLUMNS)}")


def _csv_text(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _key(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(float(row[name]) if name == "x_value" else str(row[name]) for name in KEY)


def _without(text: str, keys: set[tuple[object, ...]]) -> str:
    rows = [row for row in csv.DictReader(io.StringIO(text)) if _key(row) not in keys]
    return ",".join(COLUMNS) + "\n" + _csv_text(rows)
