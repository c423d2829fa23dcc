"""What fused_linear_rowsum promises beyond the numbers that the contract test checks."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest
import torch
from plain_calls import asked

import kernelyard.ops as ops
from kernelyard import nn
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.core.workload import Mode, Workload
from kernelyard.kernels import nvrtc
from kernelyard.kernels.counters import launched
from kernelyard.ops.fused_linear_rowsum import plan
from kernelyard.suites.library import peer

DEFINITION = ops.definition("fused_linear_rowsum")
NAMES = ("x", "weight", "bias")


def _usable(device: torch.device) -> list[ModuleType]:
    """The kernel backends that run on this machine."""
    modules = [ops.backend_module("fused_linear_rowsum", backend) for backend in (Backend.TRITON, Backend.CUDA)]
    probe = [torch.zeros(1, 1, device=device), torch.zeros(1, 1, device=device), None]
    return [module for module in modules if module.refusal(*probe) is None]


def _inputs(device: torch.device) -> list[torch.Tensor]:
    return [torch.randn(shape, device=device) for shape in ((5, 40), (7, 40), (7,))]


def test_shapes_that_do_not_fit_are_refused() -> None:
    x, weight, bias = _inputs(torch.device("cpu"))
    for wrong in ((x[0, 0], weight, bias), (x, weight.t(), bias), (x, weight, x), (x, weight[0], None)):
        with pytest.raises(ValueError, match=r"takes \(\.\.\., I\), \(O, I\) and \(O,\), not"):
            ops.fused_linear_rowsum(*wrong)


def test_the_module_is_a_linear_layer_and_a_sum(device: torch.device) -> None:
    for bias in (True, False):
        module = nn.LinearRowSum(40, 7, bias=bias, device=device)
        linear = torch.nn.Linear(40, 7, bias=bias, device=device)
        module.load_state_dict(linear.state_dict())
        x = torch.randn(2, 3, 40, device=device)
        torch.testing.assert_close(module(x), linear(x).sum(-1), rtol=1e-4, atol=1e-4)


def test_only_wanted_gradients_are_computed(device: torch.device) -> None:
    dy = torch.randn(5, device=device)
    for module in _usable(device):
        inputs = _inputs(device)
        every = [item.clone().requires_grad_() for item in inputs]
        expected = torch.autograd.grad(module.fused_linear_rowsum(*every), every, dy)
        for i, name in enumerate(NAMES):
            given = [item.clone().requires_grad_(i == j) for j, item in enumerate(inputs)]
            y = module.fused_linear_rowsum(*given)
            kept = [item.shape for item in y.grad_fn.saved_tensors if item is not None]  # type: ignore[union-attr]
            assert kept == {"x": [(40,)], "weight": [(5, 40)], "bias": []}[name]
            assert torch.equal(torch.autograd.grad(y, given[i], dy)[0], expected[i]), name


def test_a_frozen_weight_compiles(device: torch.device) -> None:
    for module in _usable(device):
        x, weight, bias = _inputs(device)
        compiled = torch.compile(module.fused_linear_rowsum, fullgraph=True, backend="aot_eager")
        x.requires_grad_()
        (got,) = torch.autograd.grad(compiled(x, weight, bias).sum(), x)
        torch.testing.assert_close(got, weight.sum(0).expand(5, 40))


def test_sums_that_cancel_are_as_right_as_float64_allows(device: torch.device) -> None:
    """Weights that nearly cancel over the outputs: the error is that of one rounding of the largest partial sum."""
    weight = torch.randn(64, 48, device=device)
    weight[32:] = -weight[:32] + 1e-3 * torch.randn(32, 48, device=device)
    x = torch.randn(9, 48, device=device) + 10
    exact = (x.double() @ weight.double().t()).sum(-1)
    for module in _usable(device):
        error = (module.fused_linear_rowsum(x, weight, None).double() - exact).abs().max().item()
        largest = (x.abs().double() @ weight.abs().double().t()).sum(-1).max().item()
        assert error < 2**-23 * largest, f"{error:.2e} of {exact.abs().max():.2e}"


def test_half_precision_is_rounded_once(device: torch.device) -> None:
    """Eager rounds every output to bf16 before the sum; summed in fp32, one rounding is left."""
    torch.manual_seed(0)
    x, weight, bias = (item.bfloat16() for item in _inputs(device))
    exact = torch.nn.functional.linear(x.double(), weight.double(), bias.double()).sum(-1)
    for module in _usable(device):
        assert torch.equal(module.fused_linear_rowsum(x, weight, bias), exact.bfloat16())


def test_half_precision_makes_no_copies_in_float32(device: torch.device) -> None:
    """A walk there and back asks for its gradients and for less beside them than one copy would take."""
    batch, outputs, length = (256, 300, 512) if device.type == "cpu" else (4096, 4096, 1024)
    x, weight, bias = (
        torch.randn(shape, device=device).bfloat16().requires_grad_()
        for shape in ((batch, length), (outputs, length), (outputs,))
    )

    def beside_gradients(call: Callable[..., torch.Tensor]) -> int:
        def there_and_back() -> tuple[torch.Tensor, ...]:
            y = call(x, weight, bias)
            return torch.autograd.grad(y, (x, weight, bias), torch.ones_like(y))

        gradients = sum(gradient.nbytes for gradient in there_and_back())
        return asked(there_and_back, device) - gradients

    copy = 2 * min(x.nbytes, weight.nbytes)
    for module in _usable(device):
        assert 0 <= beside_gradients(module.fused_linear_rowsum) < copy
    assert beside_gradients(lambda x, w, c: torch.nn.functional.linear(x.float(), w.float(), c.float()).sum(-1)) >= copy


def test_the_algebraic_form_is_a_peer_without_a_library(device: torch.device) -> None:
    rival = peer("fused_linear_rowsum", "algebraic")
    x, weight, bias = _inputs(device)
    expected = torch.nn.functional.linear(x, weight, bias).sum(-1)
    torch.testing.assert_close(rival.call(x, weight, bias), expected, rtol=1e-4, atol=1e-4)
    assert rival.refusal(x.bfloat16(), weight, bias) == "takes tensors of one dtype"


def test_launches_are_counted(device: torch.device) -> None:
    for module in _usable(device):
        prefix = f"fused_linear_rowsum_{module.__name__.rpartition('.')[2]}."
        before = launched(prefix)
        module.fused_linear_rowsum(*_inputs(device))
        assert launched(prefix) > before


def test_vectors_fit_what_is_aligned() -> None:
    assert plan.vector(4096, (4096,), ((0, 2), (512, 2))) == 8
    assert plan.vector(4096, (4096,), ((0, 2), (512, 4))) == 4
    assert plan.vector(4096, (4096,), ((2, 2),)) == 1
    assert plan.vector(4098, (4098, 0), ((0, 2),)) == 2
    assert plan.vector(4097, (4097,), ((0, 2),)) == 1


HOPPER = plan.Chip(132, 227 << 10, clusters=True, copies=True)
TURING = plan.Chip(40, 64 << 10, clusters=False, copies=False)


@pytest.mark.parametrize("width", [0, 1, 64, 257, 4096, 8192, 12288, 300_000])
def test_strips_cover_the_width_and_keep_the_chip_busy(width: int) -> None:
    for limits, vec in product((plan.COLUMNS, plan.LONG_COLUMNS, plan.STRIPS, plan.WIDE_STRIPS), (1, 4, 8)):
        chosen = plan.cut(limits, width, vec, HOPPER)
        assert chosen.strips * chosen.across * chosen.vec >= width
        assert chosen.cluster <= limits.cluster and chosen.strips >= 1
        if width >= 4096:
            assert chosen.strips * chosen.cluster >= 0.6 * 132 * limits.resident
    assert plan.cut(plan.STRIPS, width, 8, TURING).cluster == 1


@pytest.mark.parametrize("width", [0, 1, 64, 257, 4096, 8192, 12288, 300_000])
@pytest.mark.parametrize("rows", [1, 100, 5000])
def test_rows_are_covered_by_lanes_that_the_rings_have_room_for(rows: int, width: int) -> None:
    for vec, chip in product((1, 2, 4, 8), (HOPPER, TURING)):
        chosen = plan.dots(rows, width, vec, 16 // vec if vec > 1 else 2, chip)
        assert chosen.group * chosen.chunks * vec >= width
        assert chosen.stages != 1 and (chosen.stages == 0 or chip.copies)
        assert chosen.shared_bytes <= 128 << 10
        if chosen.stages:
            assert chosen.chunks * vec <= plan.DOT_REGISTERS
        assert 1 <= chosen.grid(rows, chip.processors) <= 2 * chip.processors
    assert bool(plan.dots(rows, 4096, 8, 2, HOPPER).stages)
    assert not plan.dots(rows, 300_000, 8, 2, HOPPER).stages


def test_panels_cover_the_width() -> None:
    for width in (1, 64, 257, 4096, 300_000):
        for vec in (1, 4, 8):
            chosen = plan.panels(width, vec, HOPPER)
            assert chosen.panels * chosen.across * vec >= width
            assert chosen.ctas % chosen.panels == 0 and chosen.ctas >= chosen.panels


@pytest.mark.parametrize(("arch", "chip"), [("sm_75", TURING), ("sm_90a", HOPPER)])
@pytest.mark.parametrize(("dtype", "vec"), [("float", 4), ("Bfloat", 8), ("Half", 1)])
def test_every_kernel_compiles(arch: str, chip: plan.Chip, dtype: str, vec: int) -> None:
    folder, size = Path(plan.__file__).parent, 4 if dtype == "float" else 2
    stages = plan.stages(vec, size, chip, plan.COLUMN_STAGES)
    types = (("TYPE", dtype), ("EXTRA", dtype), ("WEIGHT", dtype), ("BIAS", "float"))
    strips, columns = (plan.cut(limits, 4096, vec, chip).macros for limits in (plan.STRIPS, plan.COLUMNS))
    for source, kernel, macros in (
        ("columns", "column_sums", (*columns, ("STAGES", stages), ("AHEAD", plan.AHEAD), ("WEIGHTED", 1))),
        ("dots", "row_dots", plan.dots(5000, 4096, vec, size, chip).macros),
        ("gradients", "write_gradients", plan.panels(4096, vec, chip).macros),
        ("strips", "strips_backward", (*strips, ("RESIDENT", 4), ("ITEMS", plan.STRIP_ITEMS))),
    ):
        assert kernel.encode() in nvrtc._compile(folder / f"{source}.cu", (*types, *macros), arch)


def test_cost_counts_each_byte_once() -> None:
    workload = Workload.of(8, 100, dtype="bfloat16", out_features=5)
    assert DEFINITION.cost(workload, Mode.FORWARD).bytes == (8 * 100 + 5 * 100 + 5 + 8) * 2
    assert DEFINITION.cost(workload, Mode.BACKWARD).bytes == (2 * 8 * 100 + 8 + 5 * 100 + 5) * 2
    square = Workload.of(8, 100, bias=False)
    assert DEFINITION.cost(square, Mode.FORWARD).bytes == (8 * 100 + 8 * 100 + 8) * 4


def test_a_shape_that_cannot_be_is_one_line() -> None:
    with pytest.raises(UsageError, match="not a scalar"):
        DEFINITION.workload_of((), "float32")


@pytest.mark.gpu
def test_captured_launches_wait_for_one_another(device: torch.device) -> None:
    """The second kernel starts while the first ends; in a graph of many calls each still reads its own parts."""
    for module in _usable(device):
        inputs = [torch.randn(shape, device=device).bfloat16() for shape in ((300, 4096), (500, 4096), (500,))]
        expected = module.fused_linear_rowsum(*inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = [module.fused_linear_rowsum(*inputs) for _ in range(20)]
        for _ in range(5):
            graph.replay()
            assert all(torch.equal(y, expected) for y in results)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(37, 1000), (300, 257), (5000, 40), (700, 12288), (0, 64), (1, 4096)])
def test_two_kernels_write_the_gradients_that_one_does(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    """The pair is for large tensors; here it is made to take small ones, of a strided x and a strided gradient of y."""
    module = ops.backend_module("fused_linear_rowsum", Backend.CUDA)
    rows, width = shape
    x = torch.randn(rows, width + 8, device=device, dtype=dtype)[:, :width].requires_grad_()
    weight = torch.randn(70, width, device=device, dtype=dtype).requires_grad_()
    bias = torch.randn(70, device=device, dtype=dtype).requires_grad_()
    dy = torch.randn(rows, 2, device=device, dtype=dtype)[:, 0]
    found = []
    for limit in (1 << 60, -1):
        monkeypatch.setattr(plan, "PAIR_BYTES", limit)
        y = module.fused_linear_rowsum(x, weight, bias)
        found.append(torch.autograd.grad(y, (x, weight, bias), dy))
    counted = launched("fused_linear_rowsum_cuda.write_gradients")
    assert counted > 0
    exact = dy.double() @ x.detach().double()
    size = (dy.double().abs() @ x.detach().double().abs()).max().item() if rows else 0.0
    for dx, dw, db in found:
        assert torch.equal(dx, found[0][0]) and torch.equal(db, found[0][2])
        error = (dw.double() - exact).abs().max().item()
        assert error <= (2**-8 if dtype is torch.bfloat16 else 2**-18) * max(size, 1e-30)


@pytest.mark.gpu
@pytest.mark.slow
def test_more_than_two_to_the_31_elements(device: torch.device) -> None:
    x = torch.randn(2**19 + 9, 4096, device=device, dtype=torch.bfloat16).requires_grad_()
    weight = torch.randn(33, 4096, device=device, dtype=torch.bfloat16).requires_grad_()
    dy = torch.randn(x.shape[0], device=device, dtype=torch.bfloat16)
    sums = weight.detach().double().sum(0)
    with torch.no_grad():
        v = sum(d.double() @ part.double() for d, part in zip(dy.split(2**16), x.split(2**16), strict=True))
    for module in _usable(device):
        y = module.fused_linear_rowsum(x, weight, None)
        dx, dw = torch.autograd.grad(y, (x, weight), dy)
        for row in (0, 2**18, 2**19 + 8):
            torch.testing.assert_close(y[row].double(), x[row].double() @ sums, rtol=2**-8, atol=0.02)
            torch.testing.assert_close(dx[row].double(), dy[row].double() * sums, rtol=2**-8, atol=1e-3)
        for row in (0, 32):
            torch.testing.assert_close(dw[row].double(), v, rtol=2**-8, atol=0.02)
        del y, dx, dw
