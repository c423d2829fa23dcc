"""Which kernels ran: a count per kernel name, so that a claim about a backend can be checked.

A launch recorded in a CUDA graph counts once, when it is captured.
"""

from collections import Counter

launches: Counter[str] = Counter()
"""Launches of the library's kernels in this process, by name, such as `softmax_triton.rows_forward`."""


def launched(prefix: str = "") -> int:
    """How many launches so far had a name that starts with `prefix`."""
    return sum(count for name, count in launches.items() if name.startswith(prefix))
