"""The ledger's promises: its columns, nothing lost, nothing half-written, no foreign file touched."""

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from kernelyard.core.errors import UsageError
from kernelyard.report import ledger

SEED_HEADER = (
    "kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,x_value,"
    "y_value_50,y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp"
)


def test_the_first_14_columns_are_exactly_the_agreed_ones(tmp_path, make_row) -> None:
    path = tmp_path / "new" / "bench.csv"
    ledger.append(path, [make_row()])
    header = path.read_text().splitlines()[0]
    assert header.startswith(SEED_HEADER + ",")
    ours = header.removeprefix(SEED_HEADER + ",").split(",")
    assert {"timer", "cache", "bytes", "copy_gbps", "percent_of_floor", "torch_version", "commit"} <= set(ours)


def test_a_row_comes_back_as_it_went_in(tmp_path, make_row) -> None:
    path = tmp_path / "bench.csv"
    row = make_row(ms=0.1 + 0.2, driver=None, gpu_name='Odd, "quoted" GPU')
    ledger.append(path, [row])
    (read,) = ledger.read(path).to_dict("records")
    assert read["y_value_50"] == 0.1 + 0.2
    assert read["gpu_name"] == 'Odd, "quoted" GPU'
    assert json.loads(read["extra_benchmark_config_str"]) == {"dtype": "torch.bfloat16"}
    assert pd.isna(read["driver"]), "null must come back as null"
    assert read["commit"] == "0123456789", "a commit of digits is not a number"


def test_names_that_pandas_takes_for_nothing_come_back(tmp_path, make_row) -> None:
    path = tmp_path / "bench.csv"
    ledger.append(path, [make_row("null", gpu_name="NA", x_label="None")])
    row = ledger.read(path).iloc[0]
    assert (row["kernel_provider"], row["gpu_name"], row["x_label"]) == ("null", "NA", "None")


def test_config_keys_are_sorted() -> None:
    assert ledger.config_text("float32", rows=4, dim=0) == '{"dim": 0, "dtype": "torch.float32", "rows": 4}'


def test_a_rerun_adds_and_latest_keeps_the_newest(tmp_path, make_row) -> None:
    path = tmp_path / "bench.csv"
    ledger.append(path, [make_row(ms=0.5, timestamp="2026-01-02T00:00:00+00:00"), make_row("cuda", ms=0.45)])
    ledger.append(path, [make_row(ms=0.6, timestamp="2026-01-03T00:00:00+00:00")])
    ledger.append(path, [make_row(ms=0.7, timestamp="2026-01-01 00:00:00")])
    frame = ledger.read(path)
    assert list(frame["y_value_50"]) == [0.5, 0.45, 0.6, 0.7]
    assert set(ledger.latest(frame)["y_value_50"]) == {0.45, 0.6}


def test_overwrite_replaces_the_same_key_and_nothing_else(tmp_path, make_row) -> None:
    path = tmp_path / "bench.csv"
    others = [
        make_row("cuda"),
        make_row(x=2048),
        make_row(kernel_operation_mode="backward"),
        make_row(metric_name="memory"),
        make_row(extra_benchmark_config_str=ledger.config_text("float32")),
        make_row(gpu_name="another"),
    ]
    ledger.append(path, [make_row(ms=0.5), make_row(ms=0.6), *others])
    ledger.append(path, [make_row(ms=0.9)], overwrite=True)
    frame = ledger.read(path)
    assert len(frame) == len(others) + 1
    assert frame.iloc[-1]["y_value_50"] == 0.9
    assert 0.6 not in set(frame["y_value_50"])


def test_two_writers_at_once_lose_nothing(tmp_path, make_row) -> None:
    path = tmp_path / "bench.csv"
    writer = (
        "import sys; from pathlib import Path; from kernelyard.report import ledger\n"
        "row = ledger.BenchRow.model_validate_json(sys.argv[2])\n"
        "for x in range(40): ledger.append(Path(sys.argv[1]), [row.model_copy(update={'x_value': x})])\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", writer, str(path), make_row(provider).model_dump_json()])
        for provider in ("triton", "cuda")
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    counts = ledger.read(path).groupby("kernel_provider")["x_value"].nunique()
    assert dict(counts) == {"triton": 40, "cuda": 40}


def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path, make_row, monkeypatch) -> None:
    path = tmp_path / "bench.csv"
    ledger.append(path, [make_row()])
    before = path.read_text()

    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(ledger.os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        ledger.append(path, [make_row("cuda")])
    assert path.read_text() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["bench.csv"]


def test_the_ledger_is_replaced_and_never_written_in_place(tmp_path, make_row) -> None:
    path = tmp_path / "bench.csv"
    ledger.append(path, [make_row()])
    with path.open() as reader:
        ledger.append(path, [make_row("cuda")])
        assert len(reader.read().splitlines()) == 2, "an open reader keeps the file it opened"
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_foreign_csv_is_refused_untouched(tmp_path, make_row, overwrite: bool) -> None:
    path = tmp_path / "bench.csv"
    path.write_text("name,price\ntea,3\n")
    with pytest.raises(UsageError, match="has 'name', 'price'; expected kernel_name,"):
        ledger.append(path, [make_row()], overwrite=overwrite)
    with pytest.raises(UsageError, match="not a ledger"):
        ledger.read(path)
    assert path.read_text() == "name,price\ntea,3\n"


def test_a_ledger_of_the_14_columns_is_read_but_not_added_to(tmp_path, make_row) -> None:
    path = tmp_path / "old.csv"
    path.write_text(
        SEED_HEADER + "\n" + 'softmax,torch,forward,speed,ms,N,hidden size,1024,0.5,0.4,0.6,"{""dtype"": '
        '""torch.float32""}",NVIDIA H100 PCIe,2025-07-29 10:11:12\n'
    )
    frame = ledger.read(path)
    assert tuple(frame.columns) == ledger.COLUMNS
    assert frame["copy_gbps"].isna().all()
    assert len(ledger.latest(frame)) == 1
    with pytest.raises(UsageError, match="14 columns"):
        ledger.append(path, [make_row()])


def test_a_missing_or_broken_file_is_one_clear_line(tmp_path, make_row) -> None:
    with pytest.raises(UsageError, match="no such file"):
        ledger.read(tmp_path / "absent.csv")
    with pytest.raises(UsageError, match=": no file;"):
        ledger.read(tmp_path)
    path = tmp_path / "bench.csv"
    ledger.append(path, [make_row()])
    path.write_text(path.read_text().replace(",1024,", ",many,"))
    with pytest.raises(UsageError, match="not a whole ledger") as caught:
        ledger.read(path)
    assert "\n" not in str(caught.value)
    path.write_text("\n".join([*path.read_text().splitlines()[:1], "softmax,triton,forward"]))
    with pytest.raises(UsageError, match="data row 1 has 3 values; expected 28"):
        ledger.read(path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda header, row: b"\xff\xfe\x00abc", "it holds bytes that are no text"),
        (lambda header, row: b"x" * 200_000, "field larger than field limit"),
        (lambda header, row: header + row + row[:20], "data row 2 has 3 values; expected 28"),
        (lambda header, row: header + row[:-20], "data row 1 has 2[0-9] values; expected 28"),
        (lambda header, row: header + b"other,," + row.strip() + b",1,2,3\n", "data row 1 has 33 values"),
        (lambda header, row: header + row.replace(b",1024,", b",many,"), "could not convert"),
        (lambda header, row: header + row.replace(b",1024,", b",inf,"), "data row 1 holds a number without end"),
    ],
    ids=[
        "binary",
        "a flood",
        "a cut row",
        "a little cut",
        "too many fields",
        "words for numbers",
        "a number without end",
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_cannot_be_added_to_is_said_before_the_measuring(
    tmp_path: Path, make_row, spoil: Callable[[bytes, bytes], bytes], said: str, overwrite: bool
) -> None:
    path = tmp_path / "bench.csv"
    ledger.append(path, [make_row()])
    path.write_bytes(spoiled := spoil(*path.read_bytes().splitlines(keepends=True)))
    for refuses in (
        lambda: ledger.require_ledger(path),
        lambda: ledger.append(path, [make_row()], overwrite=overwrite),
        lambda: ledger.read(path),
    ):
        with pytest.raises(UsageError, match=said):
            refuses()
    assert path.read_bytes() == spoiled


def test_a_file_cut_in_its_last_newline_still_takes_whole_rows(tmp_path: Path, make_row) -> None:
    path = tmp_path / "bench.csv"
    ledger.append(path, [make_row()])
    path.write_text(path.read_text().rstrip("\n"))
    ledger.append(path, [make_row("cuda")])
    assert list(ledger.read(path)["kernel_provider"]) == ["triton", "cuda"]


def test_what_it_wrote_itself_is_not_parsed_again_and_what_others_wrote_is(
    tmp_path: Path, make_row, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Path] = []
    frame = ledger._frame
    monkeypatch.setattr(ledger, "_frame", lambda path, *rest: (parsed.append(path), frame(path, *rest))[1])
    path = tmp_path / "bench.csv"
    for _ in range(3):
        ledger.append(path, [make_row()])
    assert parsed == []
    path.write_text(path.read_text() + path.read_text().splitlines()[-1] + "\n")
    ledger.append(path, [make_row()])
    assert parsed == [path] and len(ledger.read(path)) == 5


def test_a_ledger_of_before_versions_is_read_and_grows_by_their_column(tmp_path: Path, make_row) -> None:
    path = tmp_path / "bench.csv"
    ledger.append(path, [make_row("liger"), make_row("cuda", ms=0.4)])
    lines = [line.rpartition(",")[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    assert ledger.read(path)["provider_version"].isna().all()
    ledger.require_ledger(path)
    ledger.append(path, [make_row("quack", provider_version="0.6.5")])
    assert ledger.read(path)["provider_version"].fillna("").tolist() == ["", "", "0.6.5"]
    assert ledger.read(path)["y_value_50"].tolist() == [0.5, 0.4, 0.5]
    assert path.read_text().splitlines()[1].startswith(lines[1])
