"""How a number is written, everywhere: in tables of the command line, in Markdown and in HTML.

Units are decimal (1 MB is 1e6 bytes), as bandwidths are. "Not measured" is `-`, never 0.
"""

import re

NOT_MEASURED = "-"


def format_ms(milliseconds: float | None) -> str:
    """A time given in milliseconds, with the unit that suits its size: `12.3 us`, `4.56 ms`, `1.20 s`."""
    if milliseconds is None:
        return NOT_MEASURED
    scale, unit = _time_unit(milliseconds)
    return f"{_digits(milliseconds * scale)} {unit}"


def format_spread(p50_ms: float | None, p20_ms: float | None, p80_ms: float | None) -> str:
    """A median and its spread in the median's unit: `12.3 us (12.1-12.9)`."""
    if p50_ms is None or p20_ms is None or p80_ms is None:
        return NOT_MEASURED
    scale, unit = _time_unit(p50_ms)
    return f"{_digits(p50_ms * scale)} {unit} ({_digits(p20_ms * scale)}-{_digits(p80_ms * scale)})"


def format_seconds(seconds: float | None) -> str:
    """A time given in seconds, as `format_ms` writes it."""
    return NOT_MEASURED if seconds is None else format_ms(seconds * 1e3)


def format_bytes(count: float | None) -> str:
    """`512 B`, `134 MB`, `2.15 GB`."""
    if count is None:
        return NOT_MEASURED
    return f"{count:.0f} B" if abs(count) < 999.5 else _with_prefix(count, "B")


def format_count(count: float | None) -> str:
    """A number of operations or elements: `640`, `12.6 M`, `1.10 G`."""
    if count is None:
        return NOT_MEASURED
    return f"{count:.0f}" if abs(count) < 999.5 else _with_prefix(count, "")


def format_integer(count: int | None) -> str:
    """A small count in full: kernels, lines, trials."""
    return NOT_MEASURED if count is None else str(count)


def format_gbps(gbps: float | None) -> str:
    """A bandwidth given in 1e9 bytes a second: `2980 GB/s`, `12.4 GB/s`."""
    return NOT_MEASURED if gbps is None else f"{_digits(gbps)} GB/s"


def format_percent(percent: float | None) -> str:
    """`97.3 %`; a value under 1 keeps two digits that count."""
    if percent is None:
        return NOT_MEASURED
    return f"{percent:.2g} %" if 0 < abs(percent) < 1 else f"{percent:.1f} %"


def format_ratio(ratio: float | None) -> str:
    """A speedup, or an error over the honest error: `1.24x`."""
    return NOT_MEASURED if ratio is None else f"{_digits(ratio)}x"


def format_interval(ratio: float | None, low: float | None, high: float | None) -> str:
    """A speedup and its 95 % interval: `1.24x (1.21-1.27)`."""
    if ratio is None:
        return NOT_MEASURED
    return format_ratio(ratio) + (f" ({_digits(low)}-{_digits(high)})" if low is not None and high is not None else "")


def format_error(error: float | None) -> str:
    """An absolute or relative error: `1.2e-07`, and `0` where it is exactly that."""
    if error is None:
        return NOT_MEASURED
    return "0" if error == 0 else f"{error:.1e}"


def without_zeros(text: str) -> str:
    """`1.00 ms` as `1 ms`: for a tick, whose number is round and was not measured."""
    return re.sub(r"\.?0+(?= )", "", text) if "." in text else text


def format_size(size: float) -> str:
    """A size on an axis: multiples of 1024 as `4k` and `1M`, anything else in full."""
    for unit, step in (("M", 1 << 20), ("k", 1 << 10)):
        if size >= step and size % step == 0:
            return f"{size / step:.0f}{unit}"
    return f"{size:.0f}" if size == round(size) else f"{size:g}"


def _time_unit(milliseconds: float) -> tuple[float, str]:
    # 0.9996 ms would be written "1000 us": it belongs to the next unit already, as 999.6 bytes and 999.6e6 do.
    if abs(milliseconds) >= 999.5:
        return 1e-3, "s"
    return (1.0, "ms") if abs(milliseconds) >= 0.9995 else (1e3, "us")


def _with_prefix(count: float, unit: str) -> str:
    for step, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(count) >= step * 0.9995:
            return f"{_digits(count / step)} {prefix}{unit}"
    return f"{_digits(count / 1e3)} k{unit}"


def _digits(value: float) -> str:
    """Three digits that count, and every digit before the point."""
    size = abs(value)
    if size == 0 or size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.9995 else f"{value:.3g}"
