"""What the CUDA backends would launch on chips that are not here: within the chip's limits, of code that it has."""

from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from kernelyard.kernels import launch, nvrtc, plans
from kernelyard.kernels.norms import forward as norms
from kernelyard.ops.cross_entropy import cuda as cross_entropy
from kernelyard.ops.softmax import cuda as softmax


class Chip(NamedTuple):
    capability: tuple[int, int]
    processors: int
    shared: int
    """Bytes of shared memory that one CTA may have."""
    cluster: int
    """CTAs of the largest cluster."""


CHIPS = {
    "T4": Chip((7, 5), 40, 64 << 10, 1),
    "A100": Chip((8, 0), 108, 163 << 10, 1),
    "RTX 4090": Chip((8, 9), 128, 99 << 10, 1),
    "H100": Chip((9, 0), 132, 227 << 10, 16),
    "B200": Chip((10, 0), 148, 227 << 10, 16),
    "RTX 5090": Chip((12, 0), 170, 99 << 10, 8),
}
NORM: dict[str, Any] = {"eps": 1e-5, "offset": 0.0, "casting": "gemma", "centred": True, "count": 1, "dim": -1}


@pytest.fixture(params=CHIPS)
def chip(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Chip:
    found = CHIPS[request.param]
    facts = SimpleNamespace(multi_processor_count=found.processors, shared_memory_per_block_optin=found.shared)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: found.capability)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _=None: facts)
    return found


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of every launcher that is made; none of them launches."""
    made: list[dict[str, Any]] = []

    def note(self: Any, label: str, source: Any, kernel: str, defines: nvrtc.Defines, **shape: Any) -> None:
        made.append({"label": label, "source": source, "kernel": kernel, "defines": defines, **shape})

    monkeypatch.setattr(launch.Launcher, "__init__", note)
    monkeypatch.setattr(launch.Launcher, "bind", lambda *_: lambda *_: None)
    return made


def _loss(x: torch.Tensor, reduction: str, *, gradient: bool) -> None:
    call = cross_entropy.Call(x.shape, x.stride(), x.dtype, x.device, 0, torch.int64, -100, reduction, 0.0, 0.0)
    cross_entropy._prepare_forward(call, x.shape[:1], keep=gradient, gradient=gradient)


def _layer_norm(x: torch.Tensor) -> None:
    parameter = x.new_empty(x.shape[-1])
    norms.prepare_result(x, parameter, parameter, **NORM)


CALLS: dict[str, Callable[[torch.Tensor], object]] = {
    "softmax": lambda x: softmax._prepare_forward(x, -1),
    "softmax backward": lambda x: softmax._prepare_backward(x, x, -1),
    "layer_norm": _layer_norm,
    "cross_entropy": lambda x: _loss(x, "mean", gradient=False),
    "cross_entropy with gradient": lambda x: _loss(x, "mean", gradient=True),
    "cross_entropy of each row": lambda x: _loss(x, "none", gradient=False),
}


def _shapes() -> Iterator[tuple[int, int]]:
    for rows in (1, 16, 20_000):
        for power in range(9, 24):
            yield rows, 1 << power
            yield rows, (1 << power) + 8


@pytest.mark.parametrize("call", CALLS)
def test_no_launch_asks_for_more_than_a_chip_has(call: str, chip: Chip, launched: list[dict[str, Any]]) -> None:
    for shape in _shapes():
        for dtype in (torch.float32, torch.bfloat16):
            CALLS[call](torch.empty(shape, dtype=dtype, device="meta"))
    assert launched
    for one in launched:
        assert one["threads"] <= 1024
        assert one.get("cluster", 1) <= chip.cluster, one
        assert one.get("shared_bytes", 0) <= chip.shared, one


@pytest.mark.parametrize(
    "limits", [norms.LAYER_NORM.limits, norms.ADD_RMS_NORM.limits, softmax.FORWARD.limits, softmax.BACKWARD.limits]
)
def test_rows_over_the_chip_fill_its_shared_memory_and_no_more(limits: plans.Limits, chip: Chip) -> None:
    seen = set()
    for size, power in product((2, 4), range(16, 26)):
        for length in (1 << power, (1 << power) + 8, 3 << power - 1):
            plan = plans.rows(limits, torch.device("cuda", 0), size, length, plans.Fit(16 // size, False))
            if not isinstance(plan, plans.ChipPlan):
                continue
            used = plan.shared_bytes(limits) + plan.board_bytes
            assert used <= chip.shared < used + 2 * plan.shared_bytes(limits) // plan.ring
            # What is left of the ring hides the time until a row's total is known.
            assert plan.ring - plan.flight + plan.tail > plan.tiles
            assert plan.ctas * plan.tiles * plan.items * plan.threads * 16 >= length * size
            seen.add(plan.ring)
    assert bool(seen) == (chip.capability[0] >= 8)


@pytest.mark.parametrize(
    ("call", "shape"),
    [("softmax", (4, 32768)), ("layer_norm", (16, 2_097_152)), ("cross_entropy of each row", (4096, 32768))],
)
def test_what_is_launched_compiles_for_the_chip(
    call: str, shape: tuple[int, int], chip: Chip, launched: list[dict[str, Any]]
) -> None:
    CALLS[call](torch.empty(shape, dtype=torch.bfloat16, device="meta"))
    target = launch.architecture(torch.device("cuda", 0))
    for one in launched:
        assert one["kernel"].encode() in nvrtc._compile(one["source"], one["defines"], target)
