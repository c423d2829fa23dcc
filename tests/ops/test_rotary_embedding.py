"""RotaryEmbedding, which torch has none of, against complex numbers in float64."""

import pytest
import torch

from kernelyard import nn
from kernelyard.core.errors import UsageError
from kernelyard.kernels.counters import launched


def rotated(x: torch.Tensor, positions: torch.Tensor, dim: int, interleaved: bool) -> torch.Tensor:
    """By complex numbers, in float64."""
    turned, rest = x[..., :dim].double(), x[..., dim:].double()
    angles = positions[..., None].double() * 10000.0 ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    phase = torch.polar(torch.ones_like(angles), angles)
    if positions.dim() == 2:
        phase = phase[:, None]
    shaped = turned.unflatten(-1, (-1, 2)) if interleaved else turned.unflatten(-1, (2, -1)).mT
    product = torch.view_as_real(torch.view_as_complex(shaped.contiguous()) * phase)
    return torch.cat(((product if interleaved else product.mT).flatten(-2), rest), -1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim", [16, 8])
@pytest.mark.parametrize("given", ["none", "shared", "of each sequence"])
def test_rotary_embedding_turns_pairs_by_their_angle(interleaved: bool, dim: int, given: str) -> None:
    q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 2, 5, 16)
    positions = torch.randint(0, 4000, (2, 5)) if given == "of each sequence" else torch.arange(5) + 7
    if given == "none":
        positions = torch.arange(5)
    module = nn.RotaryEmbedding(dim, interleaved=interleaved)
    got = module(q, k, *([] if given == "none" else [positions]))
    for result, x in zip(got, (q, k), strict=True):
        # An angle of 4000 is 1.2e-4 off in float32.
        torch.testing.assert_close(result.double(), rotated(x, positions, dim, interleaved), rtol=0, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding_on_a_gpu_runs_the_cuda_kernels(interleaved: bool, device: torch.device) -> None:
    q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 2, 5, 16)
    leaves = [x.to(device).requires_grad_() for x in (q, k)]
    before = [launched(f"rope_cuda.{direction}") for direction in ("forward", "backward")]
    got = nn.RotaryEmbedding(16, interleaved=interleaved)(*leaves)
    # Turned back, a result is what it was made of.
    back = torch.autograd.grad(got, leaves, [y.detach() for y in got])
    assert [launched(f"rope_cuda.{direction}") for direction in ("forward", "backward")] == [n + 1 for n in before]
    for x, y, again in zip((q, k), got, back, strict=True):
        torch.testing.assert_close(y.double().cpu(), rotated(x, torch.arange(5), 16, interleaved), rtol=0, atol=1e-5)
        torch.testing.assert_close(again.cpu(), x, rtol=0, atol=1e-5)


def test_rotary_embedding_keeps_its_angles_when_it_is_cast() -> None:
    q = torch.randn(1, 1, 300, 8)
    module = nn.RotaryEmbedding(8)
    assert not module.state_dict()
    half = module.to(torch.bfloat16)(q.bfloat16(), q.bfloat16())[0]
    assert not torch.equal(half[:, :, 256], half[:, :, 257])
    torch.testing.assert_close(half.float(), module(q, q)[0], rtol=0.02, atol=0.02)


def test_rotary_embedding_wants_pairs() -> None:
    with pytest.raises(ValueError, match="dim is 7, expected an even number"):
        nn.RotaryEmbedding(7)


def test_rotary_embedding_says_what_is_wrong_as_rope_does() -> None:
    module, q = nn.RotaryEmbedding(8), torch.randn(1, 2, 3, 8)
    with pytest.raises(ValueError, match=r"rope: q and k are \(B, H, T, D\), not 8 and 8"):
        module(q[0, 0, 0], q[0, 0, 0])
    with pytest.raises(TypeError, match="RotaryEmbedding: k is None, expected a tensor"):
        module(q, None)
    with pytest.raises(TypeError, match="RotaryEmbedding: position_ids is of type list, expected a tensor"):
        module(q, q, [0, 1, 2])
    with pytest.raises(UsageError, match="position_ids is on meta and q on cpu, expected one device"):
        module(q, q, torch.arange(3, device="meta"))
