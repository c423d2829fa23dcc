"""What every test stands on. Triton decides at import whether it interprets, so this comes before torch."""

import os
from pathlib import Path

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch

ROOT = Path(__file__).parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is not marked `gpu` is of the tier `cpu`; what is gets skipped, by name, where there is no GPU."""
    for item in items:
        if not item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.cpu)
        elif not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
