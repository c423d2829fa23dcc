"""What layer_norm, rms_norm and fused_add_rms_norm promise alike; each test runs over those of them that are there."""

from types import ModuleType
from typing import Any

import pytest
import torch
from plain_calls import wanting
from torch.fx.experimental.proxy_tensor import make_fx

from kernelyard import ops
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.core.workload import Workload
from kernelyard.judge.prepare import as_tuple, leaves
from kernelyard.judge.prove import prove
from kernelyard.kernels.counters import launched
from kernelyard.kernels.norms import triton_backward, triton_forward, triton_settings
from kernelyard.suites.library import implementation

NORMS = [name for name in ("layer_norm", "rms_norm", "fused_add_rms_norm") if name in ops.operator_names()]
KERNELS = (Backend.TRITON, Backend.CUDA)

SMALL = triton_settings.Settings(
    forward_elements=64,
    backward_elements=64,
    centred_backward_elements=64,
    column_elements=1024,
    loop_block=32,
    loop_block_of_two=32,
    loop_warps=1,
    few_rows=4,
    split_block=32,
    split_warps=1,
    split_bytes=1024,
    few_columns=2,
    sum_block=32,
    sum_warps=1,
    add_rows=4,
    add_block=16,
    add_warps=1,
)


def _given(name: str, workload: Workload, device: torch.device) -> list[Any]:
    """The arguments of a differentiable call."""
    operator = ops.definition(name)
    return leaves(operator, operator.make_inputs(workload, device))[0]


def _usable(name: str, arguments: list[Any]) -> list[ModuleType]:
    """The kernel backends that take the arguments on this machine."""
    modules = [ops.backend_module(name, backend) for backend in KERNELS if backend in ops.backends(name)]
    usable = [module for module in modules if module.refusal(*arguments) is None]
    assert usable, "no kernel backend takes the arguments"
    return usable


@pytest.mark.parametrize(
    ("shape", "options", "kernels"),
    [
        ((70, 9), {}, ("held_forward", "held_backward", "add_up")),
        ((3, 7, 40), {"dim": 1}, ("held_forward", "held_backward")),
        ((5, 131), {"shift": 50}, ("looped_forward", "long_backward", "add_up")),
        ((2, 70, 20), {"dim": 1, "shift": 50}, ("looped_forward", "long_backward")),
        ((3, 333), {"shift": 50}, ("split_forward", "long_backward")),
        ((5, 133), {"weight": False}, ("looped_forward", "long_backward")),
        ((1, 600, 2), {"dim": 1}, ("split_forward", "long_backward")),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", NORMS)
def test_every_triton_kernel_is_right(
    name: str,
    shape: tuple[int, ...],
    options: dict[str, Any],
    kernels: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    device: torch.device,
) -> None:
    """With small settings, so that the kernels of long rows run at sizes the interpreter takes."""
    if "dim" in options and name == "fused_add_rms_norm":
        pytest.skip("works along the last dim only")
    for module in (triton_settings, triton_forward, triton_backward):
        monkeypatch.setattr(module, "SETTINGS", SMALL)
    workload = Workload.of(*shape, **options)
    before = [launched(f"norms_triton.{kernel}") for kernel in kernels]
    proof = prove(ops.definition(name), implementation(name, "triton"), implementation(name, "eager"), workload, device)
    assert proof.passed, f"{proof.status}: {proof.report or proof.message}"
    after = [launched(f"norms_triton.{kernel}") for kernel in kernels]
    assert all(late > early for early, late in zip(before, after, strict=True)), dict(zip(kernels, after, strict=True))


@pytest.mark.parametrize("name", NORMS)
def test_statistics_are_kept_in_fp32(name: str, device: torch.device) -> None:
    arguments = _given(name, Workload.of(5, 40, dtype="bfloat16"), device)
    for module in _usable(name, arguments):
        op = getattr(torch.ops.kernelyard, f"{name}_{module.__name__.rpartition('.')[2]}")
        statistics = op(*arguments)[len(ops.definition(name).outputs) :]
        assert len(statistics) == (2 if name == "layer_norm" else 1)  # mean and rstd, or rstd alone
        for statistic in statistics:
            assert statistic.dtype is torch.float32
            assert statistic.shape == (5,)


@pytest.mark.parametrize("name", NORMS)
def test_a_weight_of_another_shape_is_refused(name: str) -> None:
    x, weight = torch.randn(3, 8), torch.ones(1)
    call = {
        "layer_norm": lambda: ops.layer_norm(x, 8, weight),
        "rms_norm": lambda: ops.rms_norm(x, 8, weight),
        "fused_add_rms_norm": lambda: ops.fused_add_rms_norm(x, x, weight),
    }[name]
    with pytest.raises(UsageError, match=r"weight has shape \[1\], expected \[8\]"):
        call()


@pytest.mark.parametrize("name", [name for name in NORMS if name != "fused_add_rms_norm"])
def test_normalized_shape_must_be_the_dims_that_end_at_dim(name: str) -> None:
    call, x = getattr(ops, name), torch.randn(2, 3, 4)
    for shape, dim in ((5, -1), ((2, 4), -1), ((), -1), ((1, 2, 3, 4), -1), (4, 1)):
        with pytest.raises(UsageError, match="normalized_shape is"):
            call(x, shape, dim=dim)
    with pytest.raises(IndexError, match=f"{name}: dim 3 is out of range, expected -3 to 2"):
        call(x, 4, dim=3)
    with pytest.raises(UsageError, match="normalized_shape is"):
        call(torch.zeros(()), 1)
    for shape in (4.0, None):
        with pytest.raises(TypeError, match="expected a size or several"):
            call(x, shape)
    with pytest.raises(TypeError, match=r"normalized_shape\[1\] is of type float, expected an integer"):
        call(x, (3, 4.0))
    assert call(x, (3, 4)).shape == call(x, [2, 3], dim=1).shape == x.shape


@pytest.mark.parametrize("name", [name for name in NORMS if name != "fused_add_rms_norm"])
def test_a_normalized_shape_may_be_read_off_a_traced_tensor(name: str) -> None:
    """Its sizes are no plain integers to torch.compile, nor to make_fx."""

    def call(x: torch.Tensor) -> torch.Tensor:
        return getattr(ops, name)(x * 2, x.shape[-1]) + getattr(ops, name)(x, x.shape[1:], dim=x.dim() - 1)

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for shape in ((3, 4, 8), (5, 3, 9), (2, 6, 12)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), call(x))
        torch.testing.assert_close(make_fx(call, tracing_mode="symbolic")(x)(x), call(x))


@pytest.mark.gpu
@pytest.mark.parametrize("name", NORMS)
def test_a_cuda_graph_replays_every_kernel(name: str, device: torch.device) -> None:
    for shape in ((64, 1000), (100, 40_000), (4, 65536), (2, 2**21)):
        arguments = _given(name, Workload.of(*shape, dtype="bfloat16"), device)
        for module in _usable(name, arguments):
            call = getattr(module, name)

            def step(call: Any = call, arguments: list[Any] = arguments) -> tuple[torch.Tensor, ...]:
                outputs = as_tuple(call(*arguments))
                grads = [torch.ones_like(y) for y in outputs]
                return (*outputs, *torch.autograd.grad(outputs, wanting(arguments), grads))

            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = step()
            with torch.no_grad():
                arguments[0].normal_()
            graph.replay()
            assert all(torch.equal(a, b) for a, b in zip(captured, step(), strict=True))


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", NORMS)
def test_more_than_two_to_the_31_elements(name: str, device: torch.device) -> None:
    """Rows beyond the 2^31st element come out as they do by themselves, forward and backward."""
    m, n = 2**21 + 9, 1024
    first = [0, 2**20, m - 3]
    weight = torch.rand(n, device=device, dtype=torch.bfloat16) + 0.5
    x = torch.randn(m, n, device=device, dtype=torch.bfloat16)
    dy = torch.ones(1, device=device, dtype=torch.bfloat16).expand(m, n).contiguous()

    def arguments(x: torch.Tensor) -> list[Any]:
        rest = {
            "layer_norm": [weight, weight, 1e-5, 1, -1],
            "rms_norm": [weight, 1e-5, 0.0, "gemma", 1, -1],
            "fused_add_rms_norm": [x, weight, 1e-5, 0.0, "gemma"],
        }
        return [x, *rest[name]]

    for module in _usable(name, arguments(x)):
        call = getattr(module, name)
        wide = x.detach().requires_grad_()
        y = as_tuple(call(*arguments(wide)))[0]
        (dx,) = torch.autograd.grad(y, wide, dy)
        for i in first:
            few = x[i : i + 2].clone().requires_grad_()
            alone = as_tuple(call(*arguments(few)))[0]
            torch.testing.assert_close(y[i : i + 2], alone)
            torch.testing.assert_close(dx[i : i + 2], torch.autograd.grad(alone, few, dy[:2])[0])
        del y, dx
