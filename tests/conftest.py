"""What every test stands on. Triton decides at import whether it interprets, so this comes before torch."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch
from command_line import Call, Done

with suppress(ImportError):  # a GPU machine may do without it, and its tests
    from hypothesis import HealthCheck, settings

    # A loaded machine is no finding, and what is found by chance in one run is looked for in every run.
    settings.register_profile(
        "kernelyard", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("kernelyard")
    # `make fuzz`: others each time, and many.
    settings.register_profile(
        "search", deadline=None, max_examples=5000, suppress_health_check=[HealthCheck.too_slow], print_blob=True
    )

ROOT = Path(__file__).parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is not marked `gpu` is of the tier `cpu`; what is gets skipped, by name, where there is no GPU."""
    for item in items:
        if not item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.cpu)
        elif not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(autouse=True)
def _drawn_alike() -> None:
    """The same inputs in every run: which tests ran before on this worker is nobody's choice."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _given_back() -> Iterator[None]:
    """Device memory that a test let go of: of fifteen processes three kept 20 GB each, and 237 of the others failed."""
    yield
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


@pytest.fixture
def kernelyard(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """The command line, called in this process: in one of its own each call would import torch first, for 3 s."""
    from kernelyard.cli.main import main

    def call(*words: object, cwd: Path) -> Done:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["kernelyard", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return call
