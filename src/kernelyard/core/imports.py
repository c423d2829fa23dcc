"""Imports that are not looked through for garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """What is imported inside is kept for good, and the collector never looks at it.

    torch's import makes 270 thousand objects. To look through them again and again took 0.5 of 1.7 s, and each full
    collection afterwards 0.1.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
