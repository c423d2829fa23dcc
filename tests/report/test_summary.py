"""An operator's section of a document: sweeps, dtypes in one cell, memory and host folded, what falls short."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kernelyard.report import ledger
from kernelyard.report.acceptance import verdict
from kernelyard.report.summary import summary, sweeps

DTYPES = ("float32", "bfloat16", "float16")
HOST = {
    "metric_name": "host",
    "metric_unit": "us",
    "x_name": "M",
    "x_label": "rows of 4096",
    "floor_ms": None,
    "percent_of_floor": None,
}


def frame(rows: list[Any]) -> pd.DataFrame:
    return pd.DataFrame([row.model_dump() for row in rows]).astype(ledger.DTYPES)


def besides_targets(rows: list[Any]) -> list[str]:
    """On a device that no target is asked of."""
    return verdict(frame([row.model_copy(update={"gpu_name": "NVIDIA H200"}) for row in rows]))


@pytest.fixture
def rows(make_row) -> list[Any]:
    made = [
        make_row(provider, ms=ms * (1 + 0.1 * i), extra_benchmark_config_str=ledger.config_text(dtype))
        for i, dtype in enumerate(DTYPES)
        for provider, ms in (("eager", 0.8), ("cuda", 0.41), ("quack", 0.402))
        if (provider, dtype) != ("quack", "float32")
    ]
    made += [make_row("cuda", x=1 << 22, ms=0.5, extra_benchmark_config_str=ledger.config_text("bfloat16", dim=1))]
    made += [make_row(name, x=8, ms=us, **HOST) for name, us in (("eager", 8.0), ("public", 9.0))]
    made += [
        make_row("cuda", ms=ms, x=x, metric_name="memory", metric_unit="MB", bytes=500_000_000)
        for x, ms in ((1024, 500.0), (4096, 1250.0))
    ]
    return made


def test_every_dtype_is_in_one_cell_and_the_least_times_are_bold(rows) -> None:
    text = summary(frame(rows), {})
    assert "percent of the speed of light, cut to whole percents, bfloat16 / float16 / float32" in text
    assert "| mode | N | floor | eager | cuda | quack |" in text
    # 0.4 ms over 0.451 is 88.7 %: cut, so that a number means that much or more.
    assert "| forward | 1k | 400 us | 45 / 41 / 50 | 88 / 81 / **97** | **90** / **82** / - |" in text


def test_a_sweep_of_other_options_or_another_axis_has_its_own_table(rows) -> None:
    text = summary(frame(rows), {})
    assert "**softmax over N (row length)**" in text
    assert "**softmax dim=1 over N (row length)**: percent of the speed of light" in text
    assert "| forward | 4M | 400 us | **80** |" in text
    assert len(sweeps(frame(rows)[lambda all_rows: all_rows["metric_name"] == "speed"])) == 2


def test_host_and_memory_are_folded(rows) -> None:
    text = summary(frame(rows), {})
    assert "**softmax over M (rows of 4096)**: the host's microseconds per call" in text
    assert "| 8 | **8.0** | 9.0 |" in text
    assert "| forward | 2.50x |" in text, "the worst of all sizes"


def test_of_small_results_the_peak_stands_alone(make_row) -> None:
    """Over the two bytes of a scalar it was 1073742336x; of several sizes the smallest decides."""
    rows = [
        make_row(provider, x=x, ms=mb, metric_name="memory", kernel_operation_mode=mode, bytes=size)
        for provider, mode, x, mb, size in (
            ("eager", "forward", 1024, 536.9, (1 << 20) - 1),
            ("eager", "forward", 4096, 2147.5, 1 << 22),
            ("cuda", "forward", 1024, 0.525, (1 << 20) - 1),
            ("eager", "backward", 1024, 4.0, 1 << 20),
            ("liger", "backward", 1024, 2.5, 1 << 20),
        )
    ]
    line = "Peak memory of a call over the bytes of its results, the worst of all sizes, bfloat16"
    text = summary(frame(rows), {})
    assert f"{line}; of results under 1 MiB the peak alone.\n" in text
    assert "| forward | 2.15 GB | 525 kB | - |" in text and "| backward | 3.81x | - | 2.38x |" in text
    assert f"{line}.\n" in summary(frame(rows[3:]), {}), "where no cell is one"


def test_what_falls_short_and_what_peers_say_stands_below(rows) -> None:
    text = summary(frame(rows), {"quack": "also computes x", "liger": "is not here"})
    assert "- host time above eager's by 12.5 %: softmax bfloat16 forward M=8" in text
    assert "- nowhere more than 2 % slower than the best of eager, quack in 2 (3 cells)" in text
    assert "- quack: also computes x" in text and "liger" not in text


def test_cells_slower_than_the_best_other_are_named_worst_first(make_row) -> None:
    rows = [
        make_row(name, x=x, ms=ms, kernel_name="rms_norm")
        for x, times in (
            (65536, {"triton": 0.6, "cuda": 0.5155, "quack": 0.5, "eager": 0.9}),
            (1024, {"cuda": 1.0, "liger": 0.5}),
        )
        for name, ms in times.items()
    ]
    assert besides_targets(rows) == [
        "slower than liger by 100.0 %: rms_norm bfloat16 forward N=1k",
        "slower than quack by 3.1 %: rms_norm bfloat16 forward N=64k",
    ]


def test_only_what_was_interleaved_with_the_best_of_ours_is_compared(make_row) -> None:
    """In another run a provider may look faster or slower by what the machine was that day."""
    now = [make_row("cuda", ms=0.5), make_row("eager", ms=0.8)]
    before = [make_row(name, ms=ms, copy_gbps=2600.0) for name, ms in (("quack", 0.3), ("triton", 0.7))]
    assert besides_targets([*now, *before, make_row("liger", ms=0.3, copy_gbps=2700.0)]) == [
        "nowhere more than 2 % slower than the best of eager (1 cells)",
        "timed apart from the best of triton and cuda, and not compared: liger in 1 cells, quack in 1 cells",
    ]
    assert besides_targets([*now, before[0], make_row("triton", ms=0.33, copy_gbps=2600.0)]) == [
        "slower than quack by 10.0 %: softmax bfloat16 forward N=1k",
        "timed apart from the best of triton and cuda, and not compared: eager in 1 cells",
    ]


def test_beside_how_many_cells_each_was_timed_is_said(make_row) -> None:
    """Liger stood in the line of 108 cells for 12 of them."""
    rows = [make_row(name, x=x, ms=ms) for x in (1024, 4096) for name, ms in (("cuda", 0.5), ("eager", 0.8))]
    assert besides_targets([*rows, make_row("liger", x=4096, ms=0.7)]) == [
        "nowhere more than 2 % slower than the best of eager, liger in 1 (2 cells)"
    ]


def test_a_median_that_a_host_made_is_named(make_row) -> None:
    rows = [make_row("cuda", ms=0.5), make_row("compile", ms=0.9, y_value_20=0.7)]
    assert besides_targets(rows)[1:] == [
        "medians beyond 1.15 times the 20th percentile, as where a host stumbles: compile in 1 cells"
    ]


def test_nothing_to_compare_is_nothing_said(make_row) -> None:
    assert besides_targets([make_row("cuda"), make_row("triton")]) == []
    assert verdict(frame([make_row("eager"), make_row("liger")])) == []


def test_what_falls_short_of_its_target_is_named_and_nothing_is_rounded_up(make_row) -> None:
    rows = [
        make_row(provider, x=x, percent_of_floor=percent, extra_benchmark_config_str=ledger.config_text(dtype), **more)
        for provider, x, percent, dtype, more in (
            ("cuda", 1024, 96.996, "bfloat16", {}),
            ("triton", 1024, 80.0, "bfloat16", {}),
            ("cuda", 262144, 95.0, "float32", {}),
            ("cuda", 1024, 10.0, "float16", {}),
            ("eager", 4096, 10.0, "float32", {}),
            ("cuda", 1024, 10.0, "float32", {"kernel_operation_mode": "full"}),
            ("cuda", 1024, 10.0, "float32", {"gpu_name": "NVIDIA H200"}),
            ("cuda", 16, 84.0, "float32", {"x_name": "rows"}),
        )
    ]
    assert verdict(frame(rows)) == [
        "1 of 3 cells with a target reach it",
        "short of its target: softmax bfloat16 forward N=1k, 96.99 % (97)",
        "short of its target: softmax float32 forward rows=16, 84.00 % (85)",
    ]


def test_the_documents_own_count_is_the_tables() -> None:
    document = (Path(__file__).parents[2] / "docs/results.md").read_text()
    cells = re.findall(r"^- (\d+) of (\d+) cells with a target reach it$", document, re.MULTILINE)
    reached, asked = (sum(map(int, column)) for column in zip(*cells, strict=True))
    assert f"Of the {asked} cells with a target, the tables below show {reached} that meet it" in document


def test_without_floors_the_times_stand_there(make_row) -> None:
    text = summary(frame([make_row("eager", ms=0.8, floor_ms=None, percent_of_floor=None)]), {})
    assert "median time" in text and "| forward | 1k | - | **800 us** |" in text
