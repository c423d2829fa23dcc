"""What fused_add_rms_norm promises beyond the contract test's numbers and what the norms promise alike."""

import pytest
import torch
import torch.nn.functional as F

import kernelyard.nn
import kernelyard.ops as ops
from kernelyard.core.errors import UsageError
from kernelyard.core.workload import Mode, Workload

DEFINITION = ops.definition("fused_add_rms_norm")


def _backends(device: torch.device) -> list[str]:
    return ["eager", "triton"] if device.type == "cpu" else ["eager", "triton", "cuda"]


def test_the_total_is_the_rounded_sum_and_what_is_normalised(device: torch.device) -> None:
    """In bf16 the sum loses bits; the norm is of what the next layer will read."""
    x, residual = torch.randn(2, 6, 200, device=device).bfloat16()
    residual = 30 * residual
    weight = torch.randn(200, device=device).bfloat16()
    for backend in _backends(device):
        y, total = ops.fused_add_rms_norm(x, residual, weight, backend=backend)
        assert torch.equal(total, x + residual)
        torch.testing.assert_close(y, F.rms_norm(total, (200,), weight, 1e-6))


@pytest.mark.parametrize("used", ["y", "total", "both"])
def test_gradients_come_through_either_result(used: str, device: torch.device) -> None:
    def loss(y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        terms = {"y": y.pow(3).sum(), "total": total.pow(3).sum()}
        return terms["y"] + terms["total"] if used == "both" else terms[used]

    found = []
    for backend in _backends(device):
        x, residual, weight = (
            torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device).requires_grad_()
            for seed, shape in enumerate(((4, 50), (4, 50), (50,)))
        )
        loss(*ops.fused_add_rms_norm(x, residual, weight, backend=backend)).backward()
        assert torch.equal(x.grad, residual.grad)
        found.append((x.grad, torch.zeros(50, device=device) if weight.grad is None else weight.grad))
    for gradients in found[1:]:
        torch.testing.assert_close(gradients, found[0])


def test_a_residual_that_does_not_fit_is_refused(device: torch.device) -> None:
    x = torch.randn(3, 8, device=device)
    with pytest.raises(UsageError, match="expected one shape"):
        ops.fused_add_rms_norm(x, x[:1])
    with pytest.raises(UsageError, match="takes a residual of x's shape and dtype"):
        ops.fused_add_rms_norm(x, x.bfloat16(), backend="triton")


def test_no_eps_is_torchs_default(device: torch.device) -> None:
    """The values are small, so that another default would show."""
    x, residual = 1e-3 * torch.randn(2, 3, 8, device=device)
    expected = F.rms_norm(x + residual, (8,))
    for backend in _backends(device):
        y, _ = ops.fused_add_rms_norm(x, residual, eps=None, backend=backend)
        torch.testing.assert_close(y, expected)


def test_the_module_works_over_one_dim() -> None:
    with pytest.raises(UsageError, match=r"over the last dim, expected one size, not \(4, 8\)"):
        kernelyard.nn.FusedAddRMSNorm((4, 8))


def test_the_module_has_rms_norms_state(device: torch.device) -> None:
    theirs = torch.nn.RMSNorm(8, eps=1e-6, device=device)
    torch.nn.init.normal_(theirs.weight)
    ours = kernelyard.nn.FusedAddRMSNorm(8, device=device)
    ours.load_state_dict(theirs.state_dict())
    x, residual = torch.randn(2, 3, 8, device=device)
    y, total = ours(x, residual)
    torch.testing.assert_close((y, total), (theirs(x + residual), x + residual))
    gemma = kernelyard.nn.FusedAddRMSNorm(8, offset=1.0, device=device)
    torch.testing.assert_close(gemma(x, residual)[0], F.rms_norm(total, (8,), None, 1e-6))
    assert "offset=1.0" in repr(gemma)


def test_cost_counts_each_byte_once() -> None:
    workload = Workload.of(8, 100, dtype="bfloat16")
    tensor, parameter, statistics = 8 * 100 * 2, 100 * 2, 8 * 4
    assert DEFINITION.cost(workload, Mode.FORWARD).bytes == 4 * tensor + parameter + statistics
    assert DEFINITION.cost(workload, Mode.BACKWARD).bytes == 4 * tensor + 2 * parameter + statistics


def test_what_is_expanded_is_read_once_and_the_total_is_whole() -> None:
    """fp32: x and residual of one row's bytes each where they are expanded; the total lies whole in the backward."""
    row, rows = 4 * 1024, 1000
    cost = ops.definition("fused_add_rms_norm").cost
    plain, x, residual = (
        Workload.of(rows, 1024, dtype="fp32", **options)
        for options in ({}, {"layout": "expanded", "residual_layout": "contiguous"}, {"residual_layout": "expanded"})
    )
    for one in (x, residual):
        saved = cost(plain, Mode.FORWARD).read_bytes - cost(one, Mode.FORWARD).read_bytes
        assert saved == row * (rows - 1)
        assert cost(one, Mode.BACKWARD) == cost(plain, Mode.BACKWARD)
    both = cost(Workload.of(rows, 1024, dtype="fp32", layout="expanded"), Mode.FORWARD)
    assert cost(plain, Mode.FORWARD).read_bytes - both.read_bytes == 2 * row * (rows - 1)
