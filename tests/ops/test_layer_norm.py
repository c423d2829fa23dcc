"""What layer_norm promises beyond the numbers that the contract test checks and what the norms promise alike."""

import pytest
import torch
import torch.nn.functional as F

import kernelyard.nn
import kernelyard.ops as ops
from kernelyard.core.errors import UsageError
from kernelyard.core.workload import Mode, Workload

DEFINITION = ops.definition("layer_norm")


def _backends(device: torch.device) -> list[str | None]:
    return [None, "triton"] if device.type == "cpu" else [None, "triton", "cuda"]


@pytest.mark.parametrize("shape", [8, (8,), [6, 8], torch.Size([5, 6, 8])])
@pytest.mark.parametrize("affine", [True, False])
def test_a_call_means_what_torchs_own_means(shape: object, affine: bool, device: torch.device) -> None:
    x = torch.randn(3, 5, 6, 8, device=device)
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)  # type: ignore[arg-type]
    weight, bias = torch.randn(2, *sizes, device=device) if affine else (None, None)
    expected = F.layer_norm(x, sizes, weight, bias)
    for backend in _backends(device):
        torch.testing.assert_close(ops.layer_norm(x, shape, weight, bias, backend=backend), expected)


def test_the_channels_of_an_image_need_no_transposition(device: torch.device) -> None:
    x, weight, bias = torch.randn(2, 6, 5, 4, device=device), *torch.randn(2, 6, device=device)
    expected = F.layer_norm(x.movedim(1, -1), (6,), weight, bias).movedim(-1, 1)
    for backend in _backends(device):
        torch.testing.assert_close(ops.layer_norm(x, 6, weight, bias, dim=1, backend=backend), expected)


def test_a_bias_without_a_weight_is_for_eager_alone(device: torch.device) -> None:
    x, bias = torch.randn(3, 8, device=device), torch.randn(8, device=device)
    with pytest.raises(UsageError, match="takes a bias only beside a weight of the same dtype"):
        ops.layer_norm(x, 8, None, bias, backend="triton")
    torch.testing.assert_close(ops.layer_norm(x, 8, None, bias), F.layer_norm(x, (8,), None, bias))


def test_a_mean_ten_thousand_deviations_away_costs_no_more_than_in_torch(device: torch.device) -> None:
    """E[x^2] - mean^2 would lose all digits of the variance here."""
    x = 1e4 + torch.randn(4, 500, device=device)
    exact = F.layer_norm(x.double(), (500,))
    for backend in _backends(device)[1:]:
        error = (ops.layer_norm(x, 500, backend=backend).double() - exact).abs().max()
        assert error < 4 * (F.layer_norm(x, (500,)).double() - exact).abs().max() + 1e-3


def test_the_module_is_torchs_own(device: torch.device) -> None:
    theirs = torch.nn.LayerNorm([4, 8], eps=1e-3, device=device)
    torch.nn.init.normal_(theirs.weight)
    ours = kernelyard.nn.LayerNorm([4, 8], eps=1e-3, device=device)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight", "bias"]
    x = torch.randn(3, 4, 8, device=device)
    torch.testing.assert_close(ours(x), theirs(x))
    assert isinstance(ours, torch.nn.LayerNorm)
    assert repr(kernelyard.nn.LayerNorm(6, dim=1)).endswith(", dim=1)")
    image = torch.randn(2, 6, 3, device=device)
    plain = kernelyard.nn.LayerNorm(6, elementwise_affine=False, dim=1)
    torch.testing.assert_close(plain(image), F.layer_norm(image.mT, (6,)).mT)


def test_cost_counts_each_byte_once() -> None:
    workload = Workload.of(8, 100, dtype="bfloat16")
    tensor, parameter, statistics = 8 * 100 * 2, 100 * 2, 2 * 8 * 4
    forward, backward = (DEFINITION.cost(workload, mode) for mode in (Mode.FORWARD, Mode.BACKWARD))
    assert forward.read_bytes == tensor + 2 * parameter
    assert forward.write_bytes == tensor + statistics
    assert backward.read_bytes == 2 * tensor + parameter + statistics
    assert backward.write_bytes == tensor + 2 * parameter
    assert DEFINITION.cost(workload, Mode.FULL).bytes == forward.bytes + backward.bytes
    wide = Workload.of(8, 100, dtype="bfloat16", weight_dtype="float32", bias=False)
    assert DEFINITION.cost(wide, Mode.FORWARD).read_bytes == tensor + 100 * 4


def test_a_shape_that_cannot_be_is_one_line() -> None:
    for shape in ((3, -1), ()):
        with pytest.raises(UsageError, match="layer_norm takes a shape of at least one dim"):
            DEFINITION.workload_of(shape, "float32")
