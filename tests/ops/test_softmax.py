"""What softmax promises beyond the numbers that the contract test checks."""

from types import ModuleType

import pytest
import torch

import kernelyard.ops as ops
from kernelyard import nn
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.core.workload import Mode, Workload
from kernelyard.kernels import plans
from kernelyard.kernels.counters import launched
from kernelyard.ops.softmax import triton_settings

DEFINITION = ops.definition("softmax")


def _usable(device: torch.device) -> list[ModuleType]:
    """The kernel backends that run on this machine."""
    modules = [ops.backend_module("softmax", backend) for backend in (Backend.TRITON, Backend.CUDA)]
    return [module for module in modules if module.refusal(torch.zeros(1, device=device), -1) is None]


def _compare(module: ModuleType, x: torch.Tensor, dim: int) -> None:
    """Forward and backward against float64, in units of the dtype's rounding."""
    wide = x.double().requires_grad_()
    expected = DEFINITION.reference(wide, dim)
    grad = torch.randn(expected.shape, dtype=torch.float64, device=x.device).to(x.dtype)
    expected.backward(grad.double())
    x = x.detach().requires_grad_()
    y = module.softmax(x, dim)
    y.backward(grad)
    rounding = torch.finfo(x.dtype).eps
    assert x.grad is not None and wide.grad is not None
    torch.testing.assert_close(y.double(), expected, rtol=32 * rounding, atol=1e-30)
    torch.testing.assert_close(x.grad.double(), wide.grad, rtol=0, atol=16 * rounding * wide.grad.abs().max().item())


def test_a_named_backend_is_refused_with_its_reason() -> None:
    with pytest.raises(UsageError, match="cuda backend of softmax does not take this input: needs an NVIDIA GPU"):
        ops.softmax(torch.zeros(3), backend="cuda")
    with pytest.raises(UsageError, match="takes float32, bfloat16 and float16, not float64"):
        ops.softmax(torch.zeros(3, dtype=torch.float64), backend="torchscript")


def test_triton_on_a_cpu_asks_for_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ops.backend_module("softmax", "triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "TRITON_INTERPRET=1" in module.refusal(torch.zeros(3), -1)


def test_a_dtype_is_that_of_the_result_as_in_torch(device: torch.device) -> None:
    """As transformers' attention asks for: `softmax(scores, dim=-1, dtype=torch.float32)`."""
    scores = torch.randn(3, 40, device=device, dtype=torch.bfloat16)
    for wanted in (torch.float32, torch.bfloat16, None):
        leaf, others = (scores.clone().requires_grad_() for _ in range(2))
        y, expected = ops.softmax(leaf, -1, dtype=wanted), torch.softmax(others, -1, dtype=wanted)
        assert y.dtype is expected.dtype
        for made in (y, expected):
            (made * torch.arange(40, device=device)).sum().backward()
        assert leaf.grad is not None and leaf.grad.dtype is torch.bfloat16
        rounding = torch.finfo(y.dtype).eps
        torch.testing.assert_close(y, expected, rtol=8 * rounding, atol=rounding)
        torch.testing.assert_close(leaf.grad, others.grad, rtol=0.02, atol=1e-2)


def test_a_dim_out_of_range_is_an_index_error(device: torch.device) -> None:
    for module in _usable(device):
        for dim in (2, -3):
            with pytest.raises(IndexError):
                module.softmax(torch.zeros(2, 3, device=device), dim)


@pytest.mark.parametrize("backend", [None, *Backend])
def test_a_dim_out_of_range_is_named_whatever_the_backend(backend: Backend | None) -> None:
    """Of an empty tensor too, of which nothing is computed that could fail."""
    for shape, dims, said in (((2, 3), (2, -3), "-2 to 1"), ((0, 8), (7, -8), "-2 to 1"), ((), (1, -2), "-1 to 0")):
        for dim in dims:
            with pytest.raises(IndexError) as caught:
                ops.softmax(torch.zeros(shape), dim, backend=backend)
            assert str(caught.value) == f"softmax: dim {dim} is out of range, expected {said}"


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_a_module_without_a_dim_takes_the_one_that_torchs_takes(device: torch.device) -> None:
    for shape in ((), (3,), (3, 4), (3, 4, 5), (2, 3, 4, 5)):
        x = torch.randn(shape, device=device)
        torch.testing.assert_close(nn.Softmax()(x), torch.nn.Softmax()(x))


def test_opcheck(device: torch.device) -> None:
    for module in _usable(device):
        name = module.__name__.rpartition(".")[2]
        x = torch.randn(3, 7, 5, device=device)
        op = getattr(torch.ops.kernelyard, f"softmax_{name}")
        for dim in (1, -1):
            torch.library.opcheck(op, (x.clone().requires_grad_(), dim))
        backward = getattr(torch.ops.kernelyard, f"softmax_{name}_backward")
        torch.library.opcheck(backward, (torch.randn_like(x), torch.softmax(x, -1), -1))


@pytest.mark.parametrize("backend", [None, Backend.TRITON, Backend.COMPILE])
def test_compiles_without_breaks_for_a_dynamic_batch(backend: Backend | None, device: torch.device) -> None:
    compiled = torch.compile(lambda x: ops.softmax(x * 2, backend=backend) + 1, fullgraph=True, backend="aot_eager")
    for rows in (3, 5, 8):
        x = torch.randn(rows, 33, device=device, requires_grad=True)
        torch._dynamo.mark_dynamic(x, 0)
        y = compiled(x)
        y.pow(2).sum().backward()
        plain = x.detach().clone().requires_grad_()
        expected = torch.softmax(plain * 2, -1) + 1
        expected.pow(2).sum().backward()
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(x.grad, plain.grad)


def test_the_graph_can_be_walked_twice_and_takes_expanded_gradients(device: torch.device) -> None:
    for module in _usable(device):
        x = torch.randn(4, 40, device=device, requires_grad=True)
        y = module.softmax(x, -1)
        grad = torch.randn(4, 1, device=device).expand(4, 40)
        first = torch.autograd.grad(y, x, grad, retain_graph=True)[0]
        assert torch.equal(first, torch.autograd.grad(y, x, grad)[0])
        strided = torch.randn(40, 4, device=device).t()
        got = torch.autograd.grad(module.softmax(x, -1), x, strided)[0]
        torch.testing.assert_close(got, torch.autograd.grad(torch.softmax(x, -1), x, strided)[0])


def test_a_row_of_minus_infinity_is_nan_as_in_torch(device: torch.device) -> None:
    x = torch.randn(3, 50, device=device)
    x[1] = float("-inf")
    for module in _usable(device):
        torch.testing.assert_close(module.softmax(x, -1), torch.softmax(x, -1), equal_nan=True)
        torch.testing.assert_close(module.softmax(x.t(), 0), torch.softmax(x.t(), 0), equal_nan=True)


def test_launches_are_counted(device: torch.device) -> None:
    for module in _usable(device):
        name = module.__name__.rpartition(".")[2]
        before = launched(f"softmax_{name}.rows_forward")
        module.softmax(torch.randn(2, 8, device=device), -1)
        assert launched(f"softmax_{name}.rows_forward") == before + 1


def test_every_triton_kernel_is_right(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """With small settings, so that the looped and split kernels run at sizes the interpreter takes."""
    module = ops.backend_module("softmax", "triton")
    small = triton_settings.Settings(
        row_elements=64,
        loop_block=64,
        loop_warps=1,
        few_rows=4,
        split_block=32,
        split_warps=1,
        split_bytes=1024,
        column_elements=128,
        few_columns=3,
    )
    monkeypatch.setattr(triton_settings, "SETTINGS", small)
    monkeypatch.setattr(module, "SETTINGS", small)
    for kernel, shape, dim in (
        ("long", (5, 201), -1),
        ("split", (3, 333), -1),
        ("columns", (3, 100, 40), 1),
        ("split", (90, 2), 0),
    ):
        for direction in ("forward", "backward"):
            before = launched(f"softmax_triton.{kernel}_{direction}")
            _compare(module, torch.randn(shape, device=device) - 200, dim)
            assert launched(f"softmax_triton.{kernel}_{direction}") > before


def test_cost_counts_each_byte_once() -> None:
    workload = Workload.of(8, 100, dtype="bfloat16")
    assert DEFINITION.cost(workload, Mode.FORWARD).bytes == 2 * 8 * 100 * 2
    assert DEFINITION.cost(workload, Mode.BACKWARD).bytes == 3 * 8 * 100 * 2
    assert DEFINITION.cost(workload, Mode.FULL).bytes == 5 * 8 * 100 * 2
    expanded = Workload.of(8, 100, layout="expanded")
    assert DEFINITION.cost(expanded, Mode.FORWARD).bytes == 100 * 4 + 8 * 100 * 4


def test_a_shape_that_cannot_be_is_one_line() -> None:
    with pytest.raises(UsageError, match="not 3x-1"):
        DEFINITION.workload_of((3, -1), "float32")


def test_vectors_fit_what_is_aligned() -> None:
    assert plans.fit(2, 4096, 4096, (0, 512)) == (8, False)
    assert plans.fit(2, 4095, 4095, (0, 512)) == (8, True)
    assert plans.fit(2, 4096, 4096, (2, 512)) == (1, False)
    assert plans.fit(4, 4096, 4097, (0, 512)) == (1, False)
    assert plans.fit(2, 5, 5, (0, 512)) == (1, False)


@pytest.mark.gpu
def test_a_cuda_graph_replays_every_kernel(device: torch.device) -> None:
    for module in _usable(device):
        for shape in ((64, 1000), (4, 65536), (2, 2**21), (3, 3000, 40)):
            x = torch.randn(shape, device=device, dtype=torch.bfloat16)
            module.softmax(x, 1)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = module.softmax(x, 1)
            x.normal_()
            graph.replay()
            assert torch.equal(y, module.softmax(x, 1))


@pytest.mark.gpu
@pytest.mark.slow
def test_more_than_two_to_the_31_elements(device: torch.device) -> None:
    x = torch.randn(2**21 + 9, 1024, device=device, dtype=torch.bfloat16)
    for module in _usable(device):
        y = module.softmax(x.requires_grad_(), -1)
        dy = torch.randn(1024, device=device, dtype=torch.bfloat16).expand(x.shape)
        (dx,) = torch.autograd.grad(y, x, dy)
        for row in (0, 2**20, 2**21 + 8):
            alone = x[row].detach().double().requires_grad_()
            expected = torch.softmax(alone, -1)
            torch.testing.assert_close(y[row], expected.bfloat16())
            (exact,) = torch.autograd.grad(expected, alone, dy[row].double())
            # The gradient is made of y as it was rounded.
            torch.testing.assert_close(dx[row].double(), exact, rtol=2**-6, atol=2**-8 * exact.abs().max().item())
        del y, dx


@pytest.mark.gpu
def test_a_gpu_call_runs_the_cuda_kernel(device: torch.device) -> None:
    before = launched("softmax_cuda.")
    ops.softmax(torch.randn(4, 100, device=device))
    assert launched("softmax_cuda.") == before + 1
