"""What rope promises beyond the numbers that the contract test checks."""

from typing import Any

import pytest
import torch

from kernelyard import ops
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.core.workload import Mode, Workload
from kernelyard.kernels.counters import launched
from kernelyard.ops.rope.plan import plan

DEFINITION = ops.definition("rope")
KERNELS = (Backend.TRITON, Backend.CUDA)


def _inputs(device: torch.device, *shape: int, **options: Any) -> list[Any]:
    return list(DEFINITION.make_inputs(Workload.of(*shape, **options), device).values())


def _kernels(device: torch.device) -> list[Any]:
    """The kernel backends that run on this machine."""
    given = _inputs(device, 1, 1, 1, 2)
    return [m for m in (ops.backend_module("rope", b) for b in KERNELS) if m.refusal(*given) is None]


def _by_token(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def test_results_and_gradients_lie_as_their_inputs_do(device: torch.device) -> None:
    for module in _kernels(device):
        q, k, cos, sin, interleaved = _inputs(device, 2, 6, 5, 8, kv_heads=2)
        fused = torch.randn(2, 5, 10, 8, device=device).transpose(1, 2)
        for given_q, given_k in ((q, k), (_by_token(q), _by_token(k)), (_by_token(q), k), (fused[:, :6], fused[:, 6:])):
            leaves = [x.detach().requires_grad_() for x in (given_q, given_k)]
            outputs = module.rope(*leaves, cos, sin, interleaved)
            gradients = torch.autograd.grad(outputs, leaves, [torch.randn(y.shape, device=device) for y in outputs])
            for x, y, dx in zip(leaves, outputs, gradients, strict=True):
                dense = _by_token(x) if x.stride(1) < x.stride(2) else x.contiguous()
                assert y.stride() == dense.stride() == dx.stride()
                assert y.is_contiguous() or y.transpose(1, 2).is_contiguous()


def test_q_and_k_take_one_launch(device: torch.device) -> None:
    for module in _kernels(device):
        arguments = _inputs(device, 2, 6, 5, 8, kv_heads=2)
        before = launched("rope_")
        module.rope(*arguments)
        assert launched("rope_") == before + 1


def test_the_backward_is_the_opposite_rotation(device: torch.device) -> None:
    for module in _kernels(device):
        for interleaved in (False, True):
            q, k, cos, sin, _ = _inputs(device, 2, 3, 7, 16, kv_heads=1, interleaved=interleaved)
            leaves = [q.requires_grad_(), k.requires_grad_()]
            outputs = module.rope(*leaves, cos, sin, interleaved)
            back = torch.autograd.grad(outputs, leaves, [y.detach() for y in outputs])
            for x, y, again in zip(leaves, outputs, back, strict=True):
                torch.testing.assert_close(again, x)
                torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))


def test_halves_of_a_table_may_differ(device: torch.device) -> None:
    """No kernel reads half of cos and sin and takes the other half for the same."""
    q, k, _, _, _ = _inputs(device, 2, 3, 7, 16, kv_heads=1)
    cos, sin = torch.randn(7, 16, device=device), torch.randn(7, 16, device=device)
    for module in _kernels(device):
        for interleaved in (False, True):
            results = []
            for call in (module.rope, DEFINITION.reference):
                leaves = [x.detach().clone().requires_grad_() for x in (q, k)]
                outputs = call(*leaves, cos, sin, interleaved)
                results.append((*outputs, *torch.autograd.grad(sum(y.square().sum() for y in outputs), leaves)))
            torch.testing.assert_close(results[0], results[1])


def test_a_result_that_nothing_used_has_a_gradient_of_zeros(device: torch.device) -> None:
    for module in _kernels(device):
        q, k, cos, sin, interleaved = _inputs(device, 2, 3, 4, 8, kv_heads=1)
        leaves = [q.requires_grad_(), k.requires_grad_()]
        both = torch.autograd.grad(sum(y.sum() for y in module.rope(*leaves, cos, sin, interleaved)), leaves)
        for used in (0, 1):
            grads = torch.autograd.grad(module.rope(*leaves, cos, sin, interleaved)[used].sum(), leaves)
            assert torch.equal(grads[used], both[used])
            assert torch.equal(grads[1 - used], torch.zeros_like(leaves[1 - used]))


def test_kernels_refuse_tables_that_want_a_gradient(device: torch.device) -> None:
    """They have none for them: what is trained on a CPU would stand still on a GPU."""
    for module in _kernels(device):
        backend = module.__name__.rpartition(".")[2]
        q, k, cos, sin, _ = _inputs(device, 2, 3, 4, 8)
        for table in (cos, sin):
            table.requires_grad_()
            with pytest.raises(UsageError, match=f"{backend} backend of rope .* gives cos and sin no gradient"):
                ops.rope(q, k, cos, sin, backend=backend)
            with torch.no_grad():
                expected = ops.rope(q, k, cos, sin, backend=backend)
            assert torch.equal(ops.rope(q, k, cos.detach(), sin.detach(), backend=backend)[0], expected[0])
            table.requires_grad_(False)


@pytest.mark.parametrize("table", ["shared", "batched"])
@pytest.mark.parametrize("backend", [None, Backend.EAGER, Backend.TORCHSCRIPT, Backend.COMPILE])
def test_tables_that_want_a_gradient_get_it(backend: Backend | None, table: str, device: torch.device) -> None:
    given = _inputs(device, 2, 6, 5, 8, kv_heads=2, table=table, rotated=4)[:4]
    found = []
    for call, tensors in ((ops.rope, given), (DEFINITION.reference, [tensor.double() for tensor in given])):
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        q, k = call(*leaves, interleaved=False, **({"backend": backend} if call is ops.rope else {}))
        found.append(torch.autograd.grad(q.square().sum() + k.pow(3).sum(), leaves))
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-5)


def test_opcheck_of_every_option(device: torch.device) -> None:
    for module in _kernels(device):
        backend = module.__name__.rpartition(".")[2]
        forward = getattr(torch.ops.kernelyard, f"rope_{backend}")
        backward = getattr(torch.ops.kernelyard, f"rope_{backend}_backward")
        for options in ({"layout": "by_token"}, {"interleaved": True, "table": "batched", "rotated": 4}):
            q, k, cos, sin, interleaved = _inputs(device, 2, 3, 4, 8, kv_heads=1, **options)
            torch.library.opcheck(forward, (q.requires_grad_(), k.requires_grad_(), cos, sin, interleaved))
            kept = (cos, sin, interleaved, list(q.shape), list(k.shape), True, False)
            torch.library.opcheck(backward, (q.detach(), None, *kept))
            torch.library.opcheck(backward, (q.detach(), k.detach(), *kept))


def test_compiles_for_a_dynamic_number_of_tokens(device: torch.device) -> None:
    def call(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ops.rope(q * 2, k, cos, sin, backend=Backend.TRITON)

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for tokens in (3, 5, 8):
        q, k, cos, sin, _ = _inputs(device, 2, 3, tokens, 8, kv_heads=1, layout="by_token")
        leaves = [q.requires_grad_(), k.requires_grad_()]
        got, expected = compiled(*leaves, cos, sin), call(*leaves, cos, sin)
        torch.testing.assert_close(got, expected)
        for left, right in zip(
            torch.autograd.grad(sum(y.square().sum() for y in got), leaves),
            torch.autograd.grad(sum(y.square().sum() for y in expected), leaves),
            strict=True,
        ):
            torch.testing.assert_close(left, right)


def test_shapes_that_do_not_belong_together_are_named() -> None:
    q, k, cos = torch.zeros(2, 4, 3, 8), torch.zeros(2, 1, 3, 8), torch.zeros(3, 8)
    for given, message in (
        ((q[0], k, cos, cos), "q and k are"),
        ((q, k[:1], cos, cos), "differ in their heads alone, not as 2x4x3x8 and 1x1x3x8 do"),
        ((q, k, cos, cos[:2]), "cos and sin have one shape, not 3x8 and 2x8"),
        ((q, k, cos[:2], cos[:2]), r"\(T, R\) or \(B, T, R\), not 2x8 for q of 2x4x3x8"),
        ((q, k, cos[:, :5], cos[:, :5]), "are even, not 8 and 5 of it"),
        ((q, k, torch.zeros(3, 10), torch.zeros(3, 10)), "not 8 and 10 of it"),
    ):
        with pytest.raises(ValueError, match=message):
            ops.rope(*given)
    with pytest.raises(UsageError, match="cos and sin in that or float32, not float32 float32 float16 float16"):
        ops.rope(q, k, cos.half(), cos.half(), backend="torchscript")


def test_cost_counts_q_and_k_twice_and_the_tables_once() -> None:
    workload = Workload.of(2, 4, 10, 16, dtype="bfloat16", kv_heads=1, precise=True)
    for mode in (Mode.FORWARD, Mode.BACKWARD):
        assert DEFINITION.cost(workload, mode).bytes == 2 * (2 * 5 * 10 * 16) * 2 + 2 * 10 * 16 * 4


@pytest.mark.parametrize("wide_table", [False, True])
@pytest.mark.parametrize("by_token", [False, True])
def test_a_plan_covers_all_heads_and_fits_a_cta(by_token: bool, wide_table: bool) -> None:
    for vec, width in ((8, 128), (8, 64), (8, 80), (4, 256), (1, 2048), (1, 2)):
        for heads in (1, 2, 9, 40, 72, 129):
            for tokens in (1, 3, 1000):
                chosen = plan(vec, width, heads, tokens, by_token, wide_table)
                assert chosen.units * 2 * vec == width
                assert chosen.threads <= 1024
                covered = chosen.groups(heads) * chosen.slots * chosen.items
                assert heads <= covered < heads + chosen.groups(heads) * chosen.items
                tiles = chosen.tiles(tokens, width * 4)
                assert 1 <= tiles <= -(-tokens // chosen.tokens)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["contiguous", "by_token"])
def test_more_than_two_to_the_31_elements(layout: str, device: torch.device) -> None:
    q, k, cos, sin, _ = _inputs(
        device, 1, 33, 2**19 + 3, 128, dtype="bfloat16", kv_heads=1, layout=layout, precise=True
    )
    assert q.numel() > 2**31
    for module in _kernels(device):
        got_q, got_k = module.rope(q.requires_grad_(), k.requires_grad_(), cos, sin, False)
        # A rotation back of what was rotated.
        back_q, back_k = torch.autograd.grad((got_q, got_k), (q, k), (got_q.detach(), got_k.detach()))
        for t in (0, 2**18, 2**19 + 2):
            few = q[:, :, t : t + 1], k[:, :, t : t + 1], cos[t : t + 1], sin[t : t + 1]
            expected_q, expected_k = DEFINITION.reference(*[x.double() for x in few], False)
            torch.testing.assert_close(got_q[:, :, t : t + 1], expected_q.bfloat16())
            torch.testing.assert_close(got_k[:, :, t : t + 1], expected_k.bfloat16())
            torch.testing.assert_close(back_q[:, :, t], few[0][:, :, 0], rtol=2**-6, atol=2**-6)
            torch.testing.assert_close(back_k[:, :, t], few[1][:, :, 0], rtol=2**-6, atol=2**-6)
        del got_q, got_k, back_q, back_k
