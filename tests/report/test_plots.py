"""What a plot shows, read off the data it draws, and that a picture of it is written."""

from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from kernelyard.cli.plot import plot
from kernelyard.core.errors import UsageError
from kernelyard.report import ledger, plots

FLOAT32 = ledger.config_text("float32")


@pytest.fixture
def frame(make_row) -> pd.DataFrame:
    rows = [
        make_row(provider, x=x, ms=ms, kernel_operation_mode=mode)
        for mode in ("forward", "backward")
        for provider, ms in (("cuda", 0.41), ("eager", 0.8))
        for x in (4096, 1024)
    ]
    rows += [make_row("eager", extra_benchmark_config_str=FLOAT32)]
    rows += [make_row(metric_name="memory", metric_unit="MB", ms=2000.0, floor_ms=None, percent_of_floor=None)]
    return pd.DataFrame([row.model_dump() for row in rows]).astype(ledger.DTYPES)


def test_one_chart_for_each_mode_and_configuration(frame) -> None:
    stems = [chart.stem for chart in plots.charts(plots.select(frame, "softmax", "speed"))]
    assert sorted(stems) == [
        "softmax_speed_backward_bfloat16",
        "softmax_speed_forward_bfloat16",
        "softmax_speed_forward_float32",
    ]


def test_configurations_that_differ_in_a_sign_have_a_file_each(make_row) -> None:
    rows = [make_row("cuda", extra_benchmark_config_str=ledger.config_text("float32", dim=dim)) for dim in (1, -1)]
    found = plots.charts(pd.DataFrame([row.model_dump() for row in rows]).astype(ledger.DTYPES))
    assert {chart.stem for chart in found} == {
        "softmax_speed_forward_float32-dim-1",
        "softmax_speed_forward_float32-dim--1",
    }


@pytest.mark.parametrize("wanted", ["packed=True", "packed=true", '"packed": true'])
def test_an_option_is_found_as_titles_and_as_the_ledger_write_it(make_row, wanted: str) -> None:
    texts = [ledger.config_text("float32", packed=True), FLOAT32]
    rows = [make_row("cuda", extra_benchmark_config_str=text) for text in texts]
    frame = pd.DataFrame([row.model_dump() for row in rows]).astype(ledger.DTYPES)
    assert list(plots.select(frame, "softmax", "speed", config=wanted)["extra_benchmark_config_str"]) == texts[:1]


def test_the_speed_of_light_is_bytes_over_the_measured_copy(frame) -> None:
    (chart,) = plots.charts(plots.select(frame, "softmax", "speed", ["backward"]))
    measured, sheet = chart.limits
    assert (measured.x, measured.y) == ((1024.0, 4096.0), (0.4, 0.4))
    assert sheet.y == pytest.approx((1e9 / 3350e6,) * 2)
    assert "3350" in sheet.label


def test_curves_are_sorted_by_size_and_ordered_by_backend(frame) -> None:
    (chart,) = plots.charts(plots.select(frame, "softmax", "speed", ["forward"], "dtype=bf16"))
    assert [curve.provider for curve in chart.curves] == ["eager", "cuda"]
    cuda = chart.curves[1]
    assert cuda.x == (1024.0, 4096.0)
    assert (cuda.low[0], cuda.middle[0], cuda.high[0]) == pytest.approx((0.4018, 0.41, 0.4264))
    assert cuda.percent == pytest.approx((97.56, 97.56), abs=0.01)


def test_memory_is_held_against_the_least_bytes(frame) -> None:
    (chart,) = plots.charts(plots.select(frame, "softmax", "memory"))
    assert [limit.y for limit in chart.limits] == [(1000.0,)]
    assert chart.curves[0].percent == (50.0,)


def test_only_the_newest_row_of_a_key_is_drawn(frame, make_row) -> None:
    newer = make_row("eager", x=1024, ms=0.7, timestamp="2027-01-01T00:00:00+00:00")
    both = pd.concat([pd.DataFrame([newer.model_dump()]), frame], ignore_index=True)
    (chart,) = plots.charts(plots.select(both, "softmax", "speed", ["forward"], "bfloat16"))
    assert chart.curves[0].middle == (0.7, 0.8)


def test_devices_do_not_share_a_chart(frame, make_row) -> None:
    other = pd.DataFrame([make_row("eager", gpu_name="A100 (80 GB)").model_dump()])
    found = plots.charts(plots.select(pd.concat([frame, other]), "softmax", "speed", ["forward"], "bfloat16"))
    assert [chart.stem for chart in found] == [
        "softmax_speed_forward_bfloat16_A100-80-GB",
        "softmax_speed_forward_bfloat16_NVIDIA-H100-80GB-HBM3",
    ]


def test_two_units_do_not_share_an_axis(frame, make_row) -> None:
    mixed = pd.concat([frame, pd.DataFrame([make_row("torch", metric_unit="us").model_dump()])])
    with pytest.raises(UsageError, match="ms and us"):
        plots.charts(plots.select(mixed, "softmax", "speed"))


def test_a_metric_that_has_no_chart_is_one_line(make_row) -> None:
    row = make_row(metric_name="bandwidth", metric_unit="GB/s")
    frame = pd.DataFrame([row.model_dump()]).astype(ledger.DTYPES)
    with pytest.raises(UsageError, match="'bandwidth': expected one of host, memory, speed"):
        plots.charts(plots.select(frame, "softmax", "bandwidth"))


def test_a_call_that_takes_no_memory_has_no_percent(make_row, tmp_path: Path) -> None:
    eager = make_row("eager", metric_name="memory", metric_unit="MB", ms=2e3)
    none = {"kernel_provider": "cuda", "y_value_50": 0.0, "y_value_20": 0.0, "y_value_80": 0.0}
    frame = pd.DataFrame([eager.model_dump(), eager.model_dump() | none]).astype(ledger.DTYPES)
    (chart,) = plots.charts(plots.select(frame, "softmax", "memory"))
    assert [curve.percent for curve in chart.curves] == [(50.0,), (None,)]
    assert plots.save(chart, tmp_path).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("softmx", "speed"), "did you mean 'softmax'"),
        (("softmax", "sped"), "did you mean 'speed'.*memory"),
        (("softmax", "speed", ["full"]), "expected one of backward, forward"),
        (("softmax", "speed", (), "float16x"), "torch.bfloat16.*torch.float32"),
        (("softmax", "speed", (), "dim=3"), "expected one of"),
    ],
)
def test_nothing_to_draw_says_what_there_is(frame, arguments, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plots.select(frame, *arguments)


@pytest.mark.parametrize(("wanted", "count"), [("dtype=bf16", 1), ("dtype=torch.float32", 1), ("float", 2), (None, 2)])
def test_a_configuration_is_named_by_part_or_by_key(frame, wanted, count: int) -> None:
    assert len(plots.charts(plots.select(frame, "softmax", "speed", ["forward"], wanted))) == count


def test_plot_draws_afresh_over_an_old_picture(frame, tmp_path: Path, capsys) -> None:
    csv = tmp_path / "bench.csv"
    frame.to_csv(csv, index=False)
    picture = tmp_path / "softmax_speed_forward_float32.png"
    picture.write_text("an old picture")
    plot(["softmax"], metric_name="speed", kernel_operation_mode=["forward"], extra_config_filter="float32", csv=csv)
    assert capsys.readouterr().out.split() == [str(picture)]
    pixels = matplotlib.image.imread(picture)
    assert pixels.shape[0] > 500
    grey = np.array([int(part, 16) / 255 for part in ("6b", "6b", "6b")])
    assert (np.abs(pixels[..., :3] - grey).max(axis=2) < 0.01).sum() > 50, "the eager curve is not in the picture"


def test_a_ledger_of_the_14_columns_is_drawn_without_limits(tmp_path: Path, make_row) -> None:
    old = {name: getattr(make_row("torch"), name) for name in ledger.SEED_COLUMNS}
    csv = tmp_path / "old.csv"
    pd.DataFrame([old]).to_csv(csv, index=False)
    (chart,) = plots.charts(plots.select(ledger.read(csv), "softmax", "speed"))
    assert chart.limits == ()
    assert plots.save(chart, tmp_path / "new folder").stat().st_size > 10_000


def test_display_without_a_display_is_one_line(frame, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    csv = tmp_path / "bench.csv"
    frame.to_csv(csv, index=False)
    plot(["softmax"], metric_name="memory", csv=csv, display=True)
    assert "no display here" in capsys.readouterr().err
