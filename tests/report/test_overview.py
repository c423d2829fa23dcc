"""One picture an operator: what is in it, whose it is, and that ours stand out."""

from pathlib import Path

import pandas as pd
import pytest

from kernelyard.cli.plot import plot
from kernelyard.core.errors import UsageError
from kernelyard.report import ledger, overview
from kernelyard.report.palette import KNOWN, OURS, styles


@pytest.fixture
def frame(make_row) -> pd.DataFrame:
    rows = [
        make_row(provider, x=x, ms=ms, kernel_operation_mode=mode, extra_benchmark_config_str=ledger.config_text(dtype))
        for mode in ("backward", "forward")
        for dtype in ("float32", "bfloat16")
        for provider, ms in (("eager", 0.8), ("liger", 0.6), ("cuda", 0.41))
        for x in (1024, 4096)
    ]
    rows += [make_row(x=16, x_name="rows"), make_row(extra_benchmark_config_str=ledger.config_text("bfloat16", dim=1))]
    rows += [make_row(kernel_name="other"), make_row(metric_name="memory", metric_unit="MB", ms=500.0)]
    return pd.DataFrame([row.model_dump() for row in rows]).astype(ledger.DTYPES)


def test_modes_go_down_and_dtypes_across_for_the_main_sweep_alone(frame) -> None:
    (rows,) = overview.pictured(frame, "softmax").values()
    figure = overview.draw_overview(rows)
    panels = figure.axes
    assert [axes.get_title() for axes in panels[:2]] == ["bfloat16", "float32"]
    assert [panels[0].get_ylabel(), panels[2].get_ylabel()] == ["forward", "backward"]
    for axes in panels:
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert set(lines) == {"eager", "liger", "cuda", overview.LIMIT}
        assert list(lines["cuda"].get_xdata()) == [1024, 4096]
        assert list(lines["cuda"].get_ydata()) == pytest.approx([97.56, 97.56], abs=0.01)
        assert list(lines[overview.LIMIT].get_ydata()) == [100, 100]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["eager", "cuda", "liger", overview.LIMIT]


def test_ours_are_drawn_thicker_than_any_other() -> None:
    looks = styles([*KNOWN, "stranger"])
    assert min(looks[name].width for name in OURS) > max(looks[name].width for name in looks if name not in OURS)
    assert len({look.color for look in looks.values()}) == len(looks)


def test_a_device_that_nothing_was_measured_on_is_named(frame, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no device in the ledger has 'TPU' in its name; expected a part of"):
        overview.save_overviews(frame, ["softmax"], tmp_path / "pictures", "TPU")
    assert not (tmp_path / "pictures").exists()


def test_a_picture_that_is_interrupted_leaves_the_old_one(frame, tmp_path: Path, monkeypatch) -> None:
    old = tmp_path / "softmax.png"
    old.write_text("an old picture")

    def interrupted(self: object, file: object, **_: object) -> None:
        file.write(b"half a picture")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        overview.save_overviews(frame, ["softmax"], tmp_path)
    assert old.read_text() == "an old picture" and list(tmp_path.iterdir()) == [old]


def test_all_kernels_are_drawn_and_their_sections_written(frame, tmp_path: Path, capsys) -> None:
    csv, document = tmp_path / "bench.csv", tmp_path / "results.md"
    frame.to_csv(csv, index=False)
    document.write_text("# Results\n")
    plot(all_=True, csv=csv, table=document)
    said = capsys.readouterr().out.split()
    assert said == [str(tmp_path / "other.png"), str(tmp_path / "softmax.png"), str(document)]
    assert (tmp_path / "softmax.png").stat().st_size > 20_000
    assert "](softmax.png)" in document.read_text() and "](other.png)" in document.read_text()


def test_each_device_has_its_own_picture(frame, make_row, tmp_path: Path) -> None:
    both = pd.concat([frame, pd.DataFrame([make_row(gpu_name="A100 (80 GB)").model_dump()])], ignore_index=True)
    names = [path.name for path in overview.save_overviews(both, ["softmax"], tmp_path)]
    assert names == ["softmax_A100-80-GB.png", "softmax_NVIDIA-H100-80GB-HBM3.png"]
    assert [path.name for path in overview.save_overviews(both, ["softmax"], tmp_path, "a100")] == names[:1]


def test_nothing_to_draw_says_so(frame, tmp_path: Path, make_row) -> None:
    with pytest.raises(UsageError, match="did you mean 'softmax'"):
        overview.save_overviews(frame, ["softmx"], tmp_path)
    blank = pd.DataFrame([make_row(floor_ms=None, percent_of_floor=None).model_dump()]).astype(ledger.DTYPES)
    with pytest.raises(UsageError, match="no speed of softmax with a floor"):
        overview.save_overviews(blank, ["softmax"], tmp_path)
    csv = tmp_path / "bench.csv"
    frame.to_csv(csv, index=False)
    with pytest.raises(UsageError, match="expected --kernel-name or --all"):
        plot(csv=csv)


def test_a_picture_of_other_rows_is_stale(frame, make_row, tmp_path: Path) -> None:
    overview.save_overviews(frame, ["softmax", "other"], tmp_path)
    assert overview.stale_pictures(frame, tmp_path) == []
    (tmp_path / "softmax.png").write_bytes((tmp_path / "other.png").read_bytes())
    assert overview.stale_pictures(frame, tmp_path) == ["softmax.png"]
    (tmp_path / "other.png").unlink()
    (tmp_path / "softmax.png").write_text("no picture")
    assert overview.stale_pictures(frame, tmp_path) == ["other.png", "softmax.png"]
    overview.save_overviews(frame, ["softmax", "other"], tmp_path)
    newer = pd.DataFrame([make_row(kernel_name="other", ms=0.7).model_dump()]).astype(ledger.DTYPES)
    assert overview.stale_pictures(pd.concat([frame, newer]), tmp_path) == ["other.png"]
