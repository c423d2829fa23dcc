"""Large inputs, which a worker uses where they lie in memory of the device's."""

from typing import Any

import pytest
import torch
from torch import Tensor

from kernelyard.judge.compare import same_bits
from kernelyard.sandbox.device_memory import KEPT_BYTES
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Post, Worker
from kernelyard.sandbox.session import Session
from kernelyard.sandbox.wire import TensorSpec, flatten, layout
from kernelyard.sandbox.worker import Candidate


class Region:
    """What a session or a worker takes for memory of a device."""

    def __init__(self, x: Tensor) -> None:
        self.x, self.left = x, 0

    def view(self, _spec: TensorSpec) -> Tensor:
        return self.x

    def take(self, spec: TensorSpec, device: torch.device) -> Tensor:
        return self.view(spec).clone().to(device)

    def let_go(self) -> None:
        self.left += 1


def asked(x: Tensor, *, uncopied: bool) -> dict[str, Any]:
    """A request's arguments, which are `x` alone."""
    specs, _ = layout([x])
    tree = flatten([x], [])
    return {"arguments": [tree], "tensors": [[spec.model_dump() for spec in specs]], "uncopied": uncopied}


@pytest.mark.parametrize("uncopied", [True, False])
def test_what_is_staged_is_a_copy_or_the_memory_itself(uncopied: bool) -> None:
    candidate, region = Candidate(), Region(torch.randn(5))
    shared: Any = region
    candidate._take(asked(region.x, uncopied=uncopied), shared)
    assert (candidate.staged[0][0].data_ptr() == region.x.data_ptr()) is uncopied
    assert region.left == (not uncopied), "of what was copied, the device need not hold both"
    candidate.forget()
    assert region.left == 1 and not candidate.staged


def test_the_next_inputs_take_the_place_of_the_last() -> None:
    candidate, regions = Candidate(), [Region(torch.randn(5)) for _ in range(2)]
    for shared in regions:
        candidate._take(asked(shared.x, uncopied=True), shared)  # type: ignore[arg-type]
    assert [region.left for region in regions] == [1, 0]


def test_inputs_are_looked_at_where_they_lie() -> None:
    """No worker is asked, so none can hand over what it kept."""
    session, region = object.__new__(Session), Region(torch.arange(5.0))
    specs, _ = layout([region.x])
    shared: Any = region
    session._inputs = shared, [specs]
    pristine = region.x.clone()
    assert session.inputs_are(0, [pristine], same_bits)
    region.x[3] = -1
    assert not session.inputs_are(0, [pristine], same_bits)
    session._take_inputs_back()
    session._take_inputs_back()
    assert region.left == 1


SOURCE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = 2 * x
        {change}
        return y
"""


@pytest.mark.gpu
@pytest.mark.parametrize("roomy", [True, False])
@pytest.mark.parametrize("change", ["", "x[7] = 0"])
def test_a_worker_on_a_gpu_uses_large_inputs_where_they_lie(device: torch.device, change: str, roomy: bool) -> None:
    from test_device_memory import loaded

    post = Post(choose(None, str(device)), Limits(), str(device))
    with loaded(Worker.start(post), device, SOURCE.format(change=change)) as opened:
        opened.lender.roomy = roomy
        for _ in range(3):
            x = torch.randn(KEPT_BYTES // 4 + 100, device=device)
            opened.lend([x], 1)
            (kept,) = opened.run([[x]], keep=[0]).kept
            (y,) = kept.fetched([x]).tensors or ()
            assert torch.equal(y, 2 * x)
            assert opened.inputs_are(0, [x], same_bits) is not bool(change)
        assert opened.launches([x]).unseen == "" and opened.launches([x]).kernels
        opened.forget()
        small = torch.randn(1000, device=device)
        opened.run([[small]])
        assert torch.equal((opened.fetch(0, [small]).tensors or ())[0], 2 * small)
        assert opened.inputs_are(0, [small], same_bits) is not bool(change)
