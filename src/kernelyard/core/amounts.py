"""Seconds and GiB as a user gives them: finite, and no more than every clock and counter behind them can hold."""

from typing import Any

import typer

MOST_SECONDS = 86400.0
"""A day. Waits that add up several of them are given to `poll`, in milliseconds that fit 31 bits: 24 days."""
MOST_GIB = 65536.0
"""64 TiB, more than any machine has."""
MOST_ROUNDS = 1000
"""Of one verdict. No budget ends it before as many as were asked for."""
MOST_JOBS = 1024
"""Processes or threads beside each other; more than a machine's cores serve nobody."""


def parse_seconds(text: str, least: float) -> float:
    """Raises ValueError, which says what was expected."""
    return _parse(text, least, MOST_SECONDS, "seconds")


def seconds_option(least: float, help: str) -> Any:
    """An option that takes seconds, `least` of them at the least."""
    return _option(least, MOST_SECONDS, "seconds", help)


def gib_option(least: float, help: str) -> Any:
    """An option that takes GiB, `least` of them at the least."""
    return _option(least, MOST_GIB, "GiB", help)


def _option(least: float, most: float, unit: str, help: str) -> Any:
    def parse(text: str) -> float:
        try:
            return _parse(text, least, most, unit)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return typer.Option(parser=parse, metavar=f"<{unit}>", help=help)


def _parse(text: str, least: float, most: float, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    # False for NaN, which a range of typer's lets through.
    if not least <= value <= most:
        raise ValueError(f"{text!r}: expected {least:g} to {most:g} {unit}")
    return value
