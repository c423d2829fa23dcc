"""Standard output for tables."""

import sys

from rich.console import Console


def table_console() -> Console:
    """As wide as the terminal; 150 columns where there is none: a pipe or a log has no width, our tables have one."""
    return Console(width=None if sys.stdout.isatty() else 150, highlight=False)
