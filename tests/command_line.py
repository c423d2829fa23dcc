"""The command line, as a test has it from the fixture `kernelyard`."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """How a call ended."""

    returncode: int
    stdout: str
    stderr: str


Call = Callable[..., Done]
"""Of the words after `kernelyard`, and `cwd`."""
