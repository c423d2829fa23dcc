"""A launch that the hardware has no grid for is refused before anything is launched."""

from collections.abc import Callable

import pytest
import torch

from kernelyard.core.errors import UsageError
from kernelyard.kernels import launch
from kernelyard.kernels.launch import Grid, Launcher


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Launcher]:
    """Gives a launcher of clusters of so many CTAs, which launches nothing."""

    def launcher(cluster: int) -> Launcher:
        found = Launcher.__new__(Launcher)
        found.label, found.device, found.threads, found.cluster = "made_up", torch.device("cuda", 0), 128, cluster
        found.cooperative = found.overlapping = False
        return found

    monkeypatch.setattr(launch, "_torch_launch", lambda: None)
    monkeypatch.setattr(Launcher, "_bind_to_driver", lambda *_: lambda *_: None)
    return launcher


@pytest.mark.parametrize(
    ("grid", "cluster", "said"),
    [
        (1 << 31, 1, "2147483648 x 1"),
        ((1 << 32) + 1, 1, "4294967297 x 1"),
        (1 << 28, 8, "2147483648 x 1"),
        ((1, 1 << 16), 1, "1 x 65536"),
    ],
)
def test_a_side_that_no_grid_has_is_refused(
    made: Callable[[int], Launcher], grid: Grid, cluster: int, said: str
) -> None:
    """2^32 rows and one were launched as one CTA; 65536 pieces of 2^29 classes ended in the driver's refusal."""
    with pytest.raises(UsageError) as refused:
        made(cluster).bind(grid, 1)
    assert str(refused.value) == (
        f"made_up takes {said} CTAs for this shape, expected 2147483647 x 65535 at most: use backend='eager'"
    )


@pytest.mark.parametrize(("grid", "cluster"), [((1 << 31) - 1, 1), ((1 << 28) - 1, 8), ((1, (1 << 16) - 1), 1)])
def test_the_largest_grid_is_launched(made: Callable[[int], Launcher], grid: Grid, cluster: int) -> None:
    made(cluster).bind(grid, 1)(0)
