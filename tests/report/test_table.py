"""Numbers as a reader sees them."""

import pytest

from kernelyard.report import table


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0.000512, "0.512 us"),
        (0.0123, "12.3 us"),
        (0.3561, "356 us"),
        (1.0, "1.00 ms"),
        (35.64, "35.6 ms"),
        (99.96, "100 ms"),
        (0.9994, "999 us"),
        (0.9996, "1.00 ms"),
        (999.4, "999 ms"),
        (999.96, "1.00 s"),
        (1234.0, "1.23 s"),
    ],
)
def test_a_time_has_three_digits_and_a_unit(milliseconds: float | None, text: str) -> None:
    assert table.format_ms(milliseconds) == text


def test_a_spread_keeps_the_medians_unit() -> None:
    assert table.format_spread(1.004, 0.996, 1.01) == "1.00 ms (0.996-1.01)"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (999.7, "1.00 kB"),
        (1000, "1.00 kB"),
        (134217728, "134 MB"),
        (999_999_999, "1.00 GB"),
        (None, "-"),
    ],
)
def test_bytes_are_decimal(count: float | None, text: str) -> None:
    assert table.format_bytes(count) == text


@pytest.mark.parametrize(
    ("percent", "text"),
    [(97.26, "97.3 %"), (0.0123, "0.012 %"), (0.0, "0.0 %"), (1450.0, "1450.0 %"), (None, "-")],
)
def test_percent(percent: float | None, text: str) -> None:
    assert table.format_percent(percent) == text


def test_a_speedup_shows_its_interval_where_it_has_one() -> None:
    assert table.format_interval(1.238, 1.21, 1.27) == "1.24x (1.21-1.27)"
    assert table.format_interval(12.0, None, None) == "12.0x"
    assert table.format_interval(None, None, None) == "-"


def test_sizes_and_errors() -> None:
    assert [table.format_size(size) for size in (256, 1024, 4096, 5000, 1 << 20)] == [
        "256",
        "1k",
        "4k",
        "5000",
        "1M",
    ]
    assert [table.format_size(float(size)) for size in (1_000_003, 1_500_000, 2.5)] == ["1000003", "1500000", "2.5"]
    assert [table.format_error(error) for error in (None, 0.0, 1.23e-7)] == ["-", "0", "1.2e-07"]
    assert [table.format_count(count) for count in (640, 999.7, 12_600_000)] == ["640", "1.00 k", "12.6 M"]


@pytest.mark.parametrize(
    ("text", "tick"),
    [("1.00 ms", "1 ms"), ("1.50 GB", "1.5 GB"), ("90.0 us", "90 us"), ("100 us", "100 us"), ("0.0 B", "0 B")],
)
def test_a_tick_has_no_zeros_to_spare(text: str, tick: str) -> None:
    assert table.without_zeros(text) == tick


def test_what_was_not_measured_is_a_dash_everywhere() -> None:
    one = (
        table.format_ms,
        table.format_seconds,
        table.format_bytes,
        table.format_count,
        table.format_integer,
    )
    more = (table.format_gbps, table.format_percent, table.format_ratio, table.format_error)
    assert {function(None) for function in one + more} == {"-"}
    assert table.format_spread(1.0, None, 2.0) == "-"
