"""What rms_norm promises beyond the numbers that the contract test checks and what the norms promise alike."""

import pytest
import torch
import torch.nn.functional as F

import kernelyard.nn
import kernelyard.ops as ops
from kernelyard.core.errors import UsageError
from kernelyard.core.workload import Mode, Workload

DEFINITION = ops.definition("rms_norm")


def _backends(device: torch.device) -> list[str | None]:
    return [None, "triton", "torchscript"] if device.type == "cpu" else [None, "triton", "torchscript", "cuda"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("eps", [None, 1e-2])
def test_a_call_means_what_torchs_own_means(dtype: torch.dtype, eps: float | None, device: torch.device) -> None:
    """The values are small, so that another default of eps would show."""
    x = (1e-3 * torch.randn(3, 6, 8, device=device)).to(dtype)
    weight = torch.randn(6, 8, device=device).to(dtype)
    expected = F.rms_norm(x, (6, 8), weight, eps)
    for backend in _backends(device):
        torch.testing.assert_close(ops.rms_norm(x, (6, 8), weight, eps, backend=backend), expected)


def _gemma(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + weight.float())).type_as(x)


def _llama(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x32 = x.to(torch.float32)
    return weight * (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _t5(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    hat = x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6)
    if weight.dtype in (torch.float16, torch.bfloat16):
        hat = hat.to(weight.dtype)
    return weight * hat


@pytest.mark.parametrize(
    ("model", "options", "x_dtype", "weight_dtype"),
    [
        (_gemma, {"offset": 1.0}, torch.bfloat16, torch.bfloat16),
        (_gemma, {"offset": 1.0}, torch.bfloat16, torch.float32),
        (_llama, {"casting": "llama"}, torch.bfloat16, torch.bfloat16),
        (_llama, {"casting": "llama"}, torch.float16, torch.float16),
        (_t5, {"casting": "t5"}, torch.bfloat16, torch.bfloat16),
        (_t5, {"casting": "t5"}, torch.float32, torch.bfloat16),
        (_t5, {"casting": "t5"}, torch.bfloat16, torch.float32),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_casting_rounds_where_the_model_does(
    model: object, options: dict[str, object], x_dtype: torch.dtype, weight_dtype: torch.dtype, device: torch.device
) -> None:
    """Bit for bit, but for elements where one more fp32 rounding falls to the other side: 1 in 100 at most."""
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(20, 300, device=device, generator=generator).to(x_dtype)
    weight = torch.randn(300, device=device, generator=generator).to(weight_dtype)
    expected = model(x, weight)  # type: ignore[operator]
    for backend in _backends(device):
        got = ops.rms_norm(x, 300, weight, 1e-6, backend=backend, **options)
        assert got.dtype == expected.dtype
        if got.dtype is torch.float32:
            torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
        else:
            assert (got != expected).float().mean() < 0.01


def test_another_casting_is_another_result(device: torch.device) -> None:
    """The test above could not fail if the orders agreed."""
    x, weight = torch.randn(20, 300, device=device).bfloat16(), torch.randn(300, device=device).bfloat16()
    for backend in _backends(device):
        results = [
            ops.rms_norm(x, 300, weight, 1e-6, casting=casting, backend=backend) for casting in ("gemma", "llama")
        ]
        assert (results[0] != results[1]).float().mean() > 0.05


def test_an_unknown_casting_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="unknown casting 'lama': did you mean 'llama'"):
        ops.rms_norm(torch.randn(3, 8), 8, casting="lama")


def test_the_channels_of_an_image_need_no_transposition(device: torch.device) -> None:
    x, weight = torch.randn(2, 6, 5, 4, device=device), torch.randn(6, device=device)
    expected = F.rms_norm(x.movedim(1, -1), (6,), weight).movedim(-1, 1)
    for backend in _backends(device):
        torch.testing.assert_close(ops.rms_norm(x, 6, weight, dim=1, backend=backend), expected)


def test_the_module_is_torchs_own(device: torch.device) -> None:
    theirs = torch.nn.RMSNorm(8, device=device)
    torch.nn.init.normal_(theirs.weight)
    ours = kernelyard.nn.RMSNorm(8, device=device)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight"]
    x = torch.randn(3, 8, device=device)
    torch.testing.assert_close(ours(x), theirs(x))
    assert isinstance(ours, torch.nn.RMSNorm)
    assert "casting=llama" in repr(kernelyard.nn.RMSNorm(8, casting="llama"))
    assert list(kernelyard.nn.RMSNorm(8, elementwise_affine=False).state_dict()) == []


def test_a_fresh_module_of_any_kind_multiplies_by_one(device: torch.device) -> None:
    x = torch.randn(3, 8, device=device)
    gemma = kernelyard.nn.RMSNorm(8, eps=1e-6, offset=1.0, device=device)
    assert torch.equal(gemma.weight, torch.zeros(8, device=device))
    for module in (gemma, kernelyard.nn.RMSNorm(8, eps=1e-6, casting="llama", device=device)):
        torch.testing.assert_close(module(x), F.rms_norm(x, (8,), None, 1e-6))


def test_cost_counts_each_byte_once() -> None:
    workload = Workload.of(8, 100, dtype="bfloat16")
    tensor, parameter, statistics = 8 * 100 * 2, 100 * 2, 8 * 4
    forward, backward = (DEFINITION.cost(workload, mode) for mode in (Mode.FORWARD, Mode.BACKWARD))
    assert forward.bytes == 2 * tensor + parameter + statistics
    assert backward.bytes == 3 * tensor + 2 * parameter + statistics
    to_fp32 = Workload.of(8, 100, dtype="bfloat16", weight_dtype="float32", casting="t5")
    assert DEFINITION.cost(to_fp32, Mode.FORWARD).write_bytes == 2 * tensor + statistics
    channels = Workload.of(2, 3, 5, dim=1)
    assert DEFINITION.cost(channels, Mode.FORWARD).bytes == 2 * 30 * 4 + 3 * 4 + 10 * 4
