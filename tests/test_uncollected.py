"""Importing without garbage collection in between leaves the collector on, and little for it to look through."""

import gc

import pytest

from kernelyard.core.imports import uncollected


def test_what_is_made_inside_is_set_aside() -> None:
    before = gc.get_freeze_count()
    try:
        with uncollected():
            assert not gc.isenabled()
            made = [[i] for i in range(1000)]
        assert gc.isenabled() and gc.get_freeze_count() >= before + len(made)
    finally:
        gc.unfreeze()


def test_an_import_that_fails_leaves_the_collector_on() -> None:
    try:
        with pytest.raises(ModuleNotFoundError), uncollected():
            import no_such_module  # noqa: F401
        assert gc.isenabled()
    finally:
        gc.unfreeze()
