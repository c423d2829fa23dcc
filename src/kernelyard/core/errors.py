"""The one error that means: the user asked for something that cannot be. One line, exit code 2."""

from collections.abc import Iterable
from difflib import get_close_matches


class UsageError(Exception):
    """What was asked for does not exist or does not fit. The message is one line that names what was expected."""


FAULTS = (Exception, SystemExit)
"""What a stranger's code can end in here: a file that calls sys.exit would else end the judge, with its exit code."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """An error for a name that is not among `known`, with the nearest one suggested."""
    choices = sorted(known)
    near = get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"unknown {kind} {name!r}: {hint}expected one of {', '.join(choices)}")


def first_line(error: BaseException) -> str:
    """`ValueError: what it says in its first line`."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
