"""Tables of benchmark rows, in a terminal's shape and between a document's markers."""

import errno
import re
from pathlib import Path

import pandas as pd
import pytest

from kernelyard.core.errors import UsageError
from kernelyard.report import ledger, markers, results
from kernelyard.report.overview import stale_pictures


@pytest.fixture
def frame(make_row) -> pd.DataFrame:
    rows = [
        make_row("cuda", x=1024, ms=0.41),
        make_row("eager", x=1024, ms=0.8),
        make_row("eager", x=4096, ms=1.25),
        make_row("eager", x=1024, ms=2.0, kernel_operation_mode="backward", floor_ms=None, percent_of_floor=None),
        make_row("cuda", metric_name="memory", metric_unit="MB", ms=537.0, bytes=500_000_000),
    ]
    return pd.DataFrame([row.model_dump() for row in rows]).astype(ledger.DTYPES)


def document(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "results.md"
    path.write_text(text)
    return path


def test_sizes_go_down_and_backends_across_in_the_ladders_order(frame) -> None:
    forward, backward, memory = results.grids(frame)
    assert forward.title == "softmax bfloat16 forward: speed"
    assert forward.providers == ("eager", "cuda")
    assert forward.lines == (
        results.Line("1k", "400 us", ("800 us (50.0 %)", "410 us (97.6 %)"), best=1),
        results.Line("4k", "400 us", ("1.25 ms (32.0 %)", "-"), best=0),
    )
    assert backward.lines == (results.Line("1k", "-", ("2.00 ms",), best=0),)
    assert memory.lines == (results.Line("1k", "500 MB", ("537 MB",), best=0),)


def test_the_hosts_time_stands_beside_its_multiple_of_eagers(make_row) -> None:
    rows = [
        make_row(name, ms=us, metric_name="host", metric_unit="us", x_name="M", floor_ms=None, percent_of_floor=None)
        for name, us in (("eager", 8.0), ("public", 10.0), ("liger", 20.0))
    ]
    (grid,) = results.grids(pd.DataFrame([row.model_dump() for row in rows]).astype(ledger.DTYPES))
    assert not grid.floored
    assert grid.providers == ("eager", "public", "liger")
    assert grid.lines[0].cells == ("8.0 us (1.00x)", "10.0 us (1.25x)", "20.0 us (2.50x)")


def test_a_document_gets_the_tables_under_what_they_were_measured_on(frame, tmp_path) -> None:
    path = document(
        tmp_path, "# Results\n\nbefore\n\n<!-- bench:softmax:begin -->\nSTALE\n<!-- bench:softmax:end -->\n\nafter\n"
    )
    results.write_section(path, frame, "softmax", tmp_path)
    text = path.read_text()
    assert text.startswith(
        "# Results\n\nbefore\n\n<!-- bench:softmax:begin -->\n\n![softmax on NVIDIA H100 80GB HBM3](softmax.png)\n"
    )
    assert text.endswith("<!-- bench:softmax:end -->\n\nafter\n")
    assert "STALE" not in text
    assert "| forward | 1k | 400 us | 50 | **97** |" in text
    for fact in ("triton 3.6.0", "CUDA 13.0", "driver 580.10", "2026-01-02", "same run, 2500 GB/s", "cold cache"):
        assert fact in text


def test_a_document_is_replaced_and_never_written_in_place(frame, tmp_path, monkeypatch) -> None:
    document = tmp_path / "results.md"
    document.write_text("# Results\n")

    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        results.write_section(document, frame, "softmax", tmp_path)
    assert document.read_text() == "# Results\n" and list(tmp_path.iterdir()) == [document]


def test_writing_twice_changes_nothing(frame, tmp_path) -> None:
    path = document(tmp_path, "# Results\n")
    results.write_section(path, frame, "softmax", tmp_path)
    once = path.read_text()
    results.write_section(path, frame, "softmax", tmp_path)
    assert path.read_text() == once
    assert once.count("bench:softmax:begin") == 1


def test_a_document_is_stale_until_it_is_renewed(frame, make_row, tmp_path) -> None:
    path = document(tmp_path, "# Results\n")
    assert results.stale_sections(path, frame, tmp_path) == ["softmax"]
    results.write_section(path, frame, "softmax", tmp_path)
    assert results.stale_sections(path, frame, tmp_path) == []
    newer = pd.DataFrame([make_row("cuda", ms=0.39, timestamp="2027-01-01T00:00:00+00:00").model_dump()])
    grown = pd.concat([frame, newer.astype(ledger.DTYPES)], ignore_index=True)
    assert results.stale_sections(path, grown, tmp_path) == ["softmax"]
    path.write_text(path.read_text().replace("**97**", "**98**"))
    assert results.stale_sections(path, frame, tmp_path) == ["softmax"]


def test_each_kernel_keeps_to_its_own_markers(frame, make_row, tmp_path) -> None:
    other = pd.DataFrame([make_row("eager", kernel_name="other").model_dump()]).astype(ledger.DTYPES)
    both = pd.concat([frame, other], ignore_index=True)
    path = document(tmp_path, "# Results\n")
    results.write_section(path, both, "softmax", tmp_path)
    results.write_section(path, both, "other", tmp_path)
    assert results.stale_sections(path, both, tmp_path) == []
    assert "other" not in path.read_text().split("<!-- bench:softmax:end -->")[0]


def test_a_document_whose_lines_end_in_crlf_keeps_them(frame, tmp_path) -> None:
    path = tmp_path / "results.md"
    path.write_bytes(b"# Results\r\n\r\n<!-- bench:softmax:begin -->\r\n<!-- bench:softmax:end -->\r\nend\r\n")
    results.write_section(path, frame, "softmax", tmp_path)
    content = path.read_bytes()
    assert content.count(b"\r\n") == content.count(b"\n") > 5
    assert content.startswith(b"# Results\r\n\r\n<!--") and content.endswith(b"-->\r\nend\r\n")
    assert results.stale_sections(path, frame, tmp_path) == []
    markers.replace(path, "bench:softmax", "two\nlines")
    assert b"begin -->\r\n\r\ntwo\r\nlines\r\n\r\n<!--" in path.read_bytes()


def test_a_missing_document_or_half_a_pair_of_markers_is_one_clear_line(frame, tmp_path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        results.write_section(tmp_path / "absent.md", frame, "softmax", tmp_path)
    path = document(tmp_path, "<!-- bench:softmax:end -->\n<!-- bench:softmax:begin -->\n")
    with pytest.raises(UsageError, match="expected <!-- bench:softmax:begin --> and after it"):
        results.write_section(path, frame, "softmax", tmp_path)


@pytest.mark.skipif(not ledger.DEFAULT_CSV.exists(), reason="needs the repository's own ledger, from its root")
def test_the_projects_own_tables_are_what_its_ledger_says() -> None:
    frame, folder = ledger.read(ledger.DEFAULT_CSV), ledger.DEFAULT_CSV.parent
    document = Path("docs/results.md")
    assert results.stale_sections(document, frame, folder) == []
    assert stale_pictures(frame, folder) == []
    linked = re.findall(r"\]\(([^)#:]+)\)", document.read_text())
    assert linked and not [link for link in linked if not (document.parent / link).exists()]
