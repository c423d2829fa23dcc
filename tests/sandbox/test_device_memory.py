"""GPU memory of the judge's in a worker, and host memory where that cannot be."""

import time
from types import SimpleNamespace

import pytest
import torch

from kernelyard.sandbox import clearing, device_memory, session
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.device_memory import KEPT_BYTES, DeviceBytes
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.launch import SandboxKind, choose
from kernelyard.sandbox.lending import Lender
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Post, Worker
from kernelyard.sandbox.session import Session
from kernelyard.sandbox.wire import POISON, SharedBytes, TensorSpec, layout

CPU = torch.device("cpu")
DOUBLES = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x, n):
        return 2 * x, n + 1
"""
DIES = """
import os, torch

class ModelNew(torch.nn.Module):
    def forward(self, x, n):
        os.kill(os.getpid(), 9)
"""


def loaded(worker: Worker, device: torch.device, source: str) -> Session:
    opened = Session(worker, device, Deadlines())
    opened.await_start()
    opened.load("solution.py", source, "ModelNew", [], 1, torch.float32, {})
    return opened


def test_a_worker_that_cannot_map_it_gets_host_memory(kind: SandboxKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge offers what it takes for memory of a GPU; the worker, which has none, says no and is not blamed."""

    class Offered(SharedBytes):
        where = "device"

    offered: list[int] = []

    def create(size: int, device: torch.device) -> SharedBytes:
        offered.append(size)
        return Offered.create(size, worker_may_write=False)

    monkeypatch.setattr(session, "supported", lambda _: True)
    monkeypatch.setattr(DeviceBytes, "create", create)
    with loaded(Worker.start(Post(kind)), CPU, DOUBLES) as opened:
        x, n = torch.randn(3, 5), torch.tensor([4])
        opened.run([[x, n]])
        doubled, counted = opened.fetch(0, [x, n]).tensors or ()
    assert offered == [1], "asked once"
    assert torch.equal(doubled, 2 * x) and counted.item() == 5


class Small:
    """What a session takes for memory of a device that has room for `free` bytes."""

    free = 0
    where, kept = "device", False

    def __init__(self, size: int, _device: torch.device) -> None:
        if size > Small.free:
            raise torch.OutOfMemoryError(f"{size} bytes")
        self.size, self.poisoned, self.closed = size, 0, False

    @property
    def is_large(self) -> bool:
        return self.size > KEPT_BYTES

    def poison(self, size: int) -> None:
        self.poisoned = size

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def lender(monkeypatch: pytest.MonkeyPatch) -> Lender:
    """Of a device of `Small` memory."""
    monkeypatch.setattr(DeviceBytes, "create", Small)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    made = Lender(CPU)
    made.on_device = True
    return made


@pytest.fixture
def nothing_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the test; and the clock by which it clears stands: 64 MiB take 0.2 ms, and a busy machine as long."""
    monkeypatch.setattr(clearing, "_clear", {})
    monkeypatch.setattr(clearing, "time", SimpleNamespace(monotonic=lambda: 0.0))


def test_while_it_is_timed_nothing_falls_back_to_the_host(lender: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the host it takes seconds: who leaves the baseline alone no room would be the faster one."""
    monkeypatch.setattr(Small, "free", 99)
    assert lender.lend(100, worker_may_write=True, timed=False).where == "host"
    with pytest.raises(torch.OutOfMemoryError):
        lender.lend(100, worker_may_write=True, timed=True)


def test_memory_is_kept_with_room_to_grow_where_there_is_any(lender: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Small, "free", 250)
    outputs, inputs = (lender.lend(100, worker_may_write=one, timed=True) for one in (True, False))
    assert outputs is not inputs and outputs.size == inputs.size == 200
    assert lender.lend(150, worker_may_write=True, timed=True) is outputs and outputs.poisoned == 150
    larger = lender.lend(240, worker_may_write=True, timed=True)
    assert larger.size == 240 and outputs.closed, "twice as much is not there"
    lender.keeps = False
    assert not lender.lend(100, worker_may_write=True, timed=True).kept
    lender.roomy = True
    assert lender.lend(100, worker_may_write=True, timed=True) is larger
    lender.close()
    assert larger.closed and inputs.closed


def test_where_there_is_room_a_large_piece_is_kept_as_it_is(lender: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Small, "free", 4 * KEPT_BYTES)
    assert not lender.lend(KEPT_BYTES + 1, worker_may_write=False, timed=True).kept
    lender.roomy = True
    inputs = lender.lend(KEPT_BYTES + 1, worker_may_write=False, timed=True)
    assert inputs.size == KEPT_BYTES + 1
    assert lender.lend(KEPT_BYTES, worker_may_write=False, timed=True) is inputs
    assert lender.kept_bytes == KEPT_BYTES + 1
    lender.close()
    assert inputs.closed and not lender.kept_bytes


@pytest.mark.usefixtures("nothing_given_back")
def test_what_the_allocator_gives_for_a_piece_is_cleared_before_anything_is_timed(
    lender: Lender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that finds no room takes what this process's allocator keeps."""
    reserved = [9 << 30, 1 << 30]
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: reserved.pop(0))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: monkeypatch.setattr(Small, "free", 100))
    lender.keeps = False
    lender.lend(100, worker_may_write=True, timed=True)
    assert clearing.seconds_until_clear(CPU) == pytest.approx((8 << 30) / clearing.BYTES_A_SECOND)


@pytest.mark.parametrize("size", [100, KEPT_BYTES + 1])
def test_a_large_piece_goes_when_the_room_does(lender: Lender, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(Small, "free", 4 * KEPT_BYTES)
    lender.roomy = True
    inputs = lender.lend(KEPT_BYTES + 1, worker_may_write=False, timed=True)
    lender.roomy = False
    other = lender.lend(size, worker_may_write=False, timed=True)
    assert inputs.closed and other is not inputs and lender.kept_bytes == (other.size if other.kept else 0)


def test_no_device_memory_without_an_nvidia_gpu() -> None:
    assert not device_memory.supported(CPU)
    assert not device_memory.supported(torch.device("xpu", 0))


@pytest.mark.gpu
@pytest.mark.parametrize("elements", [1, 1000, 3 << 20])
def test_tensors_cross_in_memory_of_the_gpu(device: torch.device, elements: int) -> None:
    post = Post(choose(None, str(device)), Limits(), str(device))
    with loaded(Worker.start(post), device, DOUBLES) as opened:
        assert opened.lender.on_device
        x, n = torch.randn(elements, device=device), torch.tensor([4], device=device)
        pristine = x.clone()
        opened.run([[x, n]])
        doubled, counted = opened.fetch(0, [x, n]).tensors or ()
        assert torch.equal(doubled, 2 * x) and counted.item() == 5
        assert torch.equal(x, pristine)


@pytest.mark.gpu
def test_a_worker_lets_go_of_a_large_piece_when_the_judge_does(device: torch.device) -> None:
    """What a worker still had mapped would be missing: the pages are the device's until both have let go."""
    post = Post(choose(None, str(device)), Limits(), str(device))
    size = 4 << 30
    with loaded(Worker.start(post), device, DOUBLES) as opened:
        small = [torch.randn(1000, device=device), torch.tensor([4], device=device)]
        opened.lender.roomy = True
        opened.lender._keep("inputs", size)
        opened.run([small])  # in the large piece, which the worker maps
        with_it = torch.cuda.mem_get_info(device)[0]
        opened.lender.roomy = False
        opened.run([small])
        doubled, _ = opened.fetch(0, small).tensors or ()
        without = torch.cuda.mem_get_info(device)[0]
        assert torch.equal(doubled, 2 * small[0])
    assert without - with_it > size // 2, "but for the small pieces that came in its place"


@pytest.mark.gpu
@pytest.mark.usefixtures("nothing_given_back")
def test_what_a_worker_is_lent_holds_nothing_of_the_judges(device: torch.device) -> None:
    secret = torch.full((64 << 20,), 7, dtype=torch.uint8, device=device)
    del secret
    torch.cuda.empty_cache()
    shared = DeviceBytes.create(64 << 20, device)
    assert bool((shared._bytes == POISON).all())
    shared.close()
    assert clearing.seconds_until_clear(device) > 0, "which is said where requests are timed"


@pytest.mark.gpu
def test_a_tensor_beyond_the_memory_is_refused(device: torch.device) -> None:
    shared = DeviceBytes.create(100, device)
    with pytest.raises(ValueError, match="ends at byte 104 of 100"):
        shared.read(TensorSpec(dtype="float32", shape=(26,), offset=0), device)
    shared.close()
    with pytest.raises(torch.OutOfMemoryError):
        DeviceBytes.create(1 << 40, device)


@pytest.mark.gpu
def test_memory_comes_back_from_a_worker_that_dies(device: torch.device) -> None:
    """Others may use the GPU meanwhile: what is lost counts only if it is lost each of three times."""
    post = Post(choose(None, str(device)), Limits(), str(device))
    x, n = torch.randn(256 << 20, device=device), torch.tensor([4], device=device)
    size = layout([x, n])[1]
    lost = []
    for _ in range(3):
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info(device)[0]
        with loaded(Worker.start(post), device, DIES) as opened, pytest.raises(Ended):
            opened.run([[x, n]])
        torch.cuda.empty_cache()
        time.sleep(2)  # the driver takes a moment
        lost.append(before - torch.cuda.mem_get_info(device)[0])
    assert min(lost) < size // 2
