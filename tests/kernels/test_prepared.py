"""A repeated call goes straight to its launch, and only where nothing asks for more than its result."""

import sys

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from kernelyard import ops
from kernelyard.kernels import launch, prepared
from kernelyard.kernels.counters import launched, tally
from kernelyard.ops.softmax import layout, softmax
from kernelyard.ops.softmax import prepared as softmax_table

softmax_package = sys.modules["kernelyard.ops.softmax"]


def test_a_table_that_is_full_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "LAYOUTS", 3)
    table = prepared.Prepared()
    for size in range(7):
        assert table.keep((size,), int) is table[(size,)]
        assert len(table) <= 3


def test_only_a_plain_call_without_a_gradient_is_one_for_its_result() -> None:
    x, leaf = torch.zeros(2), torch.zeros(2, requires_grad=True)
    assert prepared.inference(x) and prepared.inference(x, None, x)
    assert not prepared.inference(leaf) and not prepared.inference(x, None, leaf)
    with torch.no_grad():
        assert prepared.inference(leaf) and prepared.inference(x, leaf)
    with torch.inference_mode():
        assert prepared.inference(x)
    with FlopCounterMode(display=False):
        assert not prepared.inference(x)

    with forward_ad.dual_level():
        assert not prepared.inference(x)

    class Own(torch.Tensor):
        """Whose operators may be anything."""

    own = torch.zeros(2).as_subclass(Own)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            assert not prepared.inference(own) and not prepared.inference(x, None, own)
    assert prepared.observed(own) and prepared.observed(x, None, own) and not prepared.observed(x, None, leaf)

    def negate(row: torch.Tensor) -> torch.Tensor:
        assert not prepared.inference(row)
        return -row

    torch.vmap(negate)(torch.zeros(3, 2))


def test_a_layout_tells_apart_what_kernels_are_chosen_by() -> None:
    x = torch.zeros(8, 8)
    assert layout(x, -1) == layout(torch.ones(8, 8), -1)
    others = [x.t(), x[:4], x.half(), x.flatten()[1:50].view(7, 7), torch.zeros(65)[1:].view(8, 8)]
    assert len({layout(x, -1), layout(x, 0), *(layout(other, -1) for other in others)}) == 7


def _repeats(latest: prepared.Latest, x: torch.Tensor, dim: int = -1) -> bool:
    check, rest, offset, _ = latest.entry
    return check(x) and rest == dim and x.data_ptr() % 16 == offset


def test_a_call_that_comes_twice_is_known_by_one_look_and_no_other_is() -> None:
    x, latest = torch.zeros(8, 8), prepared.Latest()
    assert not _repeats(latest, x)
    latest.note(layout(x, -1), x, -1, torch.relu)
    assert not _repeats(latest, x), "once is no repetition"
    latest.note(layout(x, -1), x, -1, torch.relu)
    assert _repeats(latest, x) and _repeats(latest, torch.ones(8, 8)) and latest.entry[3] is torch.relu
    assert not _repeats(latest, x, 0)
    leaf = torch.zeros(8, 8, requires_grad=True)
    others = [x.t(), x[:4], x.half(), torch.zeros(65)[1:].view(8, 8), leaf, x.to("meta"), torch.nn.Parameter(x)]
    assert not any(_repeats(latest, other) for other in others)


def test_no_look_is_for_who_observes_operators() -> None:
    x, latest = torch.zeros(8, 8), prepared.Latest()
    for _ in range(2):
        latest.note(layout(x, -1), x, -1, torch.relu)
    with FlopCounterMode(display=False):
        assert not _repeats(latest, x)
    with torch.autocast("cpu"):
        assert not _repeats(latest, x)

    def negate(row: torch.Tensor) -> torch.Tensor:
        assert not _repeats(latest, row) and not _repeats(latest, x)
        return -row

    torch.vmap(negate)(torch.zeros(3, 8, 8))
    torch.func.grad(lambda row: negate(row).sum())(torch.zeros(8, 8))
    assert _repeats(latest, x)


def test_softmax_that_repeats_is_not_launched_for_another_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is prepared stands in for a kernel; torch's own answers where it is not asked."""
    monkeypatch.setattr(softmax_package, "prepared", table := prepared.Prepared())
    monkeypatch.setattr(softmax_package, "latest", prepared.Latest())
    x = torch.randn(8, 8)

    def launch_at(given: torch.Tensor, address: int) -> torch.Tensor:
        assert address == given.data_ptr()
        return given + 100

    table[layout(x, -1)] = launch_at
    for _ in range(3):
        assert torch.equal(softmax(x), x + 100)
    assert softmax_package.latest.entry[3] is not None
    for other in (x.double(), torch.randn(8, 9), x.clone().requires_grad_()):
        assert torch.allclose(softmax(other), torch.softmax(other, -1))
    assert torch.allclose(softmax(x, 0), torch.softmax(x, 0))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        assert torch.allclose(forward_ad.unpack_dual(softmax(dual)).primal, torch.softmax(x, -1))
    with pytest.raises(TypeError, match="input is of type str"):
        softmax("x")  # type: ignore[arg-type]


def test_what_repeats_without_gradients_is_not_launched_where_one_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that torch's guard looks at tells the two calls apart: the leaf wants a gradient in both."""
    monkeypatch.setattr(softmax_package, "prepared", table := prepared.Prepared())
    monkeypatch.setattr(softmax_package, "latest", prepared.Latest())
    leaf = torch.nn.Parameter(torch.randn(8))
    table[layout(leaf, -1)] = lambda given, _address: given + 100
    for _ in range(3):
        with torch.no_grad():
            assert torch.equal(softmax(leaf), leaf + 100)
    y = softmax(leaf)
    assert torch.allclose(y, torch.softmax(leaf, -1)) and y.grad_fn is not None


def test_fresh_tensors_are_contiguous_and_no_memory_is_shared() -> None:
    empty = prepared.allocator(torch.Size((3, 4)), torch.float16, torch.device("cpu"))
    first, second = empty(), empty()
    assert first.shape == (3, 4) and first.is_contiguous() and first.dtype == torch.float16
    assert first.data_ptr() != second.data_ptr()


def test_tallies_count_as_launches() -> None:
    before = launched("tallied.")
    tally("tallied.kernel")[0] += 1
    tally("tallied.kernel")[0] += 1
    assert launched("tallied.") == before + 2


@pytest.mark.gpu
def test_a_prepared_call_is_the_same_launch(device: torch.device) -> None:
    x = torch.randn(5, 1000, device=device, dtype=torch.bfloat16)
    first = softmax(x)
    count, size = launched("softmax_cuda."), len(softmax_table)
    for _ in range(3):
        assert torch.equal(softmax(x), first)
    assert launched("softmax_cuda.") == count + 3
    assert len(softmax_table) == size
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        assert torch.equal(softmax(x), first)
    torch.cuda.current_stream().wait_stream(stream)
    leaf = x.clone().requires_grad_()
    assert softmax(leaf).requires_grad


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "dim"), [((5, 1000), -1), ((3, 200_003), -1), ((20, 5_000_011), -1), ((4, 65, 33), 1)]
)
def test_a_norm_for_its_result_alone_is_the_same(shape: tuple[int, ...], dim: int, device: torch.device) -> None:
    """It leaves no statistics, wherever CTAs meet, and in rows that are worked on in batches."""
    x = torch.randn(shape, device=device, dtype=torch.bfloat16)
    weight, bias = torch.randn(2, shape[dim], device=device, dtype=torch.bfloat16)
    for call in (
        lambda **named: ops.rms_norm(x, shape[dim], weight, dim=dim, **named),
        lambda **named: ops.layer_norm(x, shape[dim], weight, bias, dim=dim, **named),
    ):
        expected = call(backend="cuda")
        for _ in range(2):
            assert torch.equal(call(), expected)


@pytest.mark.gpu
def test_both_ways_to_launch_are_the_same(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    x = torch.randn(7, 999, device=device)
    expected = softmax(x)
    softmax_table.clear()
    monkeypatch.setattr(launch, "_torch_launch", lambda: None)
    before = launched("softmax_cuda.")
    assert torch.equal(softmax(x), expected)
    assert launched("softmax_cuda.") == before + 1
    softmax_table.clear()
