"""What diagonal_matmul promises beyond the numbers that the contract test checks."""

from types import ModuleType

import pytest
import torch

import kernelyard.ops as ops
from kernelyard import nn
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.core.workload import Mode, Workload
from kernelyard.kernels.counters import launched
from kernelyard.ops.diagonal_matmul import triton_settings

DEFINITION = ops.definition("diagonal_matmul")


def _usable(device: torch.device) -> list[ModuleType]:
    """The kernel backends that run on this machine."""
    modules = [ops.backend_module("diagonal_matmul", backend) for backend in (Backend.TRITON, Backend.CUDA)]
    return [m for m in modules if m.refusal(torch.zeros(1, device=device), torch.zeros(1, 1, device=device)) is None]


@pytest.mark.parametrize("shapes", [((3,), (4, 5)), ((3, 1), (3, 5)), ((3,), (3,))])
def test_shapes_that_do_not_fit_are_refused(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match=r"takes \(N,\) and \(N, M\), not"):
        ops.diagonal_matmul(*[torch.zeros(shape) for shape in shapes])


def test_it_is_the_product_with_the_diagonal_matrix() -> None:
    a, b = torch.randn(6), torch.randn(6, 9)
    torch.testing.assert_close(ops.diagonal_matmul(a, b), torch.diag(a) @ b)
    torch.testing.assert_close(nn.DiagonalMatMul()(a, b), torch.diag(a) @ b)


def test_a_wide_factor_is_not_rounded_to_the_matrix_first(device: torch.device) -> None:
    a = torch.tensor([1 + 2**-9], device=device)
    b = torch.tensor([[3.0, 129.0]], device=device, dtype=torch.bfloat16)
    for module in _usable(device):
        assert torch.equal(module.diagonal_matmul(a, b), (a[:, None] * b.float()).bfloat16())


def test_only_wanted_gradients_are_computed(device: torch.device) -> None:
    for module in _usable(device):
        a, b = torch.randn(5, device=device), torch.randn(5, 40, device=device)
        dy = torch.randn(5, 40, device=device)
        both = [item.clone().requires_grad_() for item in (a, b)]
        expected = torch.autograd.grad(module.diagonal_matmul(*both), both, dy)
        frozen_b = a.clone().requires_grad_()
        y = module.diagonal_matmul(frozen_b, b)
        assert torch.equal(torch.autograd.grad(y, frozen_b, dy)[0], expected[0])
        frozen_a = b.clone().requires_grad_()
        y = module.diagonal_matmul(a, frozen_a)
        kept = [item for item in y.grad_fn.saved_tensors if item is not None]  # type: ignore[union-attr]
        assert [item.shape for item in kept] == [a.shape], "B is kept though nothing needs it"
        assert torch.equal(torch.autograd.grad(y, frozen_a, dy)[0], expected[1])


def test_strided_factors_are_taken(device: torch.device) -> None:
    for module in _usable(device):
        a, b = torch.randn(4, 3, device=device), torch.randn(4, 17, device=device)
        assert torch.equal(module.diagonal_matmul(a[:, 1], b), a[:, 1:2] * b)


def test_long_rows_in_triton_are_cut(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """With small settings, so that the kernel that adds up parts runs at sizes the interpreter takes."""
    module = ops.backend_module("diagonal_matmul", "triton")
    monkeypatch.setattr(triton_settings, "SETTINGS", triton_settings.Settings(block=64, warps=1))
    a = torch.randn(3, device=device, dtype=torch.float64).float().requires_grad_()
    b = torch.randn(3, 201, device=device)
    before = launched("diagonal_matmul_triton.rows_finish")
    dy = torch.randn(3, 201, device=device)
    (da,) = torch.autograd.grad(module.diagonal_matmul(a, b), a, dy)
    assert launched("diagonal_matmul_triton.rows_finish") == before + 1
    torch.testing.assert_close(da, (dy.double() * b.double()).sum(1).float(), rtol=1e-5, atol=1e-4)


def test_the_kernel_of_rows_is_counted(device: torch.device) -> None:
    for module in _usable(device):
        name = module.__name__.rpartition(".")[2]
        before = launched(f"diagonal_matmul_{name}.rows_forward")
        module.diagonal_matmul(torch.ones(3, device=device), torch.ones(3, 8, device=device))
        assert launched(f"diagonal_matmul_{name}.rows_forward") == before + 1


def test_cost_counts_each_byte_once() -> None:
    workload = Workload.of(8, 100, dtype="bfloat16")
    assert DEFINITION.cost(workload, Mode.FORWARD).bytes == 2 * 8 * 100 * 2 + 8 * 2
    assert DEFINITION.cost(workload, Mode.BACKWARD).bytes == 3 * 8 * 100 * 2 + 2 * 8 * 2
    expanded = Workload.of(8, 100, layout="expanded")
    assert DEFINITION.cost(expanded, Mode.FORWARD).bytes == (8 + 100 + 800) * 4


def test_a_shape_that_is_no_matrix_is_one_line() -> None:
    with pytest.raises(UsageError, match="not 3x4x5"):
        DEFINITION.workload_of((3, 4, 5), "float32")


@pytest.mark.gpu
@pytest.mark.slow
def test_more_than_two_to_the_31_elements(device: torch.device) -> None:
    for shape in ((2**21 + 9, 1024), (2, 2**30 + 24)):
        a = torch.randn(shape[0], device=device, dtype=torch.bfloat16).requires_grad_()
        b = torch.randn(shape, device=device, dtype=torch.bfloat16).requires_grad_()
        dy = torch.randn(shape, device=device, dtype=torch.bfloat16)
        for module in _usable(device):
            y = module.diagonal_matmul(a, b)
            da, db = torch.autograd.grad(y, (a, b), dy)
            for row in (0, shape[0] // 2, shape[0] - 1):
                assert torch.equal(y[row], (a[row].float() * b[row].float()).bfloat16())
                assert torch.equal(db[row], (a[row].float() * dy[row].float()).bfloat16())
                dot = (dy[row].double() * b[row].double()).sum()
                torch.testing.assert_close(da[row].double(), dot, rtol=2**-8, atol=shape[1] ** 0.5 * 1e-5)
            del y, da, db
