"""Which kernels ran: a count per kernel name, so that a claim about a backend can be checked.

A launch recorded in a CUDA graph counts once, when it is captured.
"""

from collections import Counter

launches: Counter[str] = Counter()
"""Launches of the library's Triton kernels in this process, by name, such as `softmax_triton.rows_forward`."""
_tallies: dict[str, list[int]] = {}


def tally(name: str) -> list[int]:
    """The count of one kernel, to be raised in place: 0.03 us a launch, where a Counter takes 0.13."""
    return _tallies.setdefault(name, [0])


def counts() -> dict[str, int]:
    """Launches so far by name, those that a CUDA tally holds included."""
    return launches + Counter({name: count for name, (count,) in _tallies.items()})


def launched(prefix: str = "") -> int:
    """How many launches so far had a name that starts with `prefix`."""
    return sum(count for name, count in counts().items() if name.startswith(prefix))
