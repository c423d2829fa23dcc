"""What swiglu and geglu promise beyond the numbers that the contract test checks."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import kernelyard.nn as nn
from kernelyard import ops
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.core.workload import Mode, Workload
from kernelyard.kernels.counters import launched
from kernelyard.kernels.glu import cuda as glu_cuda
from kernelyard.kernels.glu.layout import halves, layout, prepared, rows_of

GATED = [name for name in ("swiglu", "geglu") if name in ops.operator_names()]
OF_GEGLU = pytest.mark.skipif("geglu" not in GATED, reason="no geglu here")
KERNELS = (Backend.TRITON, Backend.CUDA)


def _options(name: str) -> tuple[Any, ...]:
    return ("none",) if name == "geglu" else ()


def _kernels(name: str, device: torch.device) -> list[Any]:
    """The kernel backends that run on this machine, as functions of gate and up."""
    x = torch.zeros(2, device=device)
    modules = [ops.backend_module(name, backend) for backend in KERNELS]
    usable = [module for module in modules if module.refusal(x, x, *_options(name)) is None]
    return [partial(_call, getattr(module, name), _options(name)) for module in usable]


def _call(kernel: Any, options: tuple[Any, ...], gate: torch.Tensor, up: torch.Tensor | None) -> torch.Tensor:
    return kernel(gate, up, *options)


@pytest.mark.parametrize("name", GATED)
def test_packed_is_apart_bit_for_bit(name: str, device: torch.device) -> None:
    for call in _kernels(name, device):
        for dtype in (torch.float32, torch.bfloat16):
            packed = torch.randn(5, 2 * 72, device=device, dtype=dtype, requires_grad=True)
            gate, up = (half.detach().clone().requires_grad_() for half in packed.chunk(2, -1))
            y, apart = call(packed, None), call(gate, up)
            assert torch.equal(y, apart)
            dy = torch.randn_like(y)
            (whole,) = torch.autograd.grad(y, packed, dy)
            assert torch.equal(whole, torch.cat(torch.autograd.grad(apart, (gate, up), dy), -1))


@pytest.mark.parametrize("name", GATED)
def test_views_of_a_packed_tensor_get_the_same_answer(name: str, device: torch.device) -> None:
    for call in _kernels(name, device):
        packed = torch.randn(3, 4, 2 * 21, device=device)
        gate, up = packed.chunk(2, -1)
        assert torch.equal(call(gate, up), call(packed, None))
        assert torch.equal(call(gate, up.contiguous()), call(packed, None))


def test_views_of_a_packed_tensor_are_read_where_they_are() -> None:
    packed = torch.randn(3, 4, 40)
    views = packed.chunk(2, -1)
    data, pitches, rows, columns = rows_of(*views)
    assert [part.data_ptr() for part in data] == [view.data_ptr() for view in views]
    assert (pitches, rows, columns) == ([40, 40], 12, 20)
    assert rows_of(*halves(packed, None))[1:] == ([40, 40], 12, 20)
    assert rows_of(packed, packed.clone())[1:] == ([40, 40], 1, 480)
    scattered = torch.randn(4, 5, 6).transpose(0, 1)
    assert rows_of(scattered, scattered)[1:] == ([6, 6], 1, 120)


@pytest.mark.parametrize("name", GATED)
def test_shapes_that_do_not_belong_together_are_named(name: str) -> None:
    call = getattr(ops, name)
    with pytest.raises(ValueError, match=f"{name}: gate and up have one shape, not 2x3 and 3"):
        call(torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(ValueError, match="halves of its last dim, whose size is even, not 2x3"):
        call(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="not a scalar"):
        call(torch.zeros(()))
    with pytest.raises(UsageError, match="gate and up of one dtype, not float32 and bfloat16"):
        call(torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16), backend="torchscript")


@pytest.mark.parametrize("name", GATED)
def test_two_dtypes_are_for_eager_alone_and_promote(name: str, device: torch.device) -> None:
    gate, up = torch.randn(2, 3, device=device), torch.randn(2, 3, device=device, dtype=torch.float16)
    for left, right in ((gate, up), (up, gate)):
        assert getattr(ops, name)(left, right).dtype is torch.float32
        with pytest.raises(UsageError, match="takes gate and up of one dtype"):
            getattr(ops, name)(left, right, backend="triton")


@pytest.mark.parametrize("name", GATED)
def test_opcheck_of_a_packed_gate(name: str, device: torch.device) -> None:
    for backend in KERNELS:
        gate = torch.randn(3, 14, device=device)
        if ops.backend_module(name, backend).refusal(gate, None, *_options(name)) is None:
            forward = getattr(torch.ops.kernelyard, f"{name}_{backend.value}")
            torch.library.opcheck(forward, (gate.clone().requires_grad_(), None, *_options(name)))
            backward = getattr(torch.ops.kernelyard, f"{name}_{backend.value}_backward")
            torch.library.opcheck(backward, (torch.randn(3, 7, device=device), gate, None, *_options(name)))


@pytest.mark.parametrize("name", GATED)
def test_cost_counts_three_streams_forward_and_five_backward(name: str) -> None:
    definition = ops.definition(name)
    for workload in (Workload.of(8, 100, dtype="bfloat16"), Workload.of(8, 200, dtype="bfloat16", packed=True)):
        assert definition.cost(workload, Mode.FORWARD).bytes == 3 * 8 * 100 * 2
        assert definition.cost(workload, Mode.BACKWARD).bytes == 5 * 8 * 100 * 2
        assert definition.cost(workload, Mode.FULL).bytes == 8 * 8 * 100 * 2


@OF_GEGLU
def test_geglu_keeps_its_digits_where_erf_cancels(device: torch.device) -> None:
    """At -6, 1 + erf(x / sqrt 2) in float32 has no digit left; the tail is right to the last bits of its exponent."""
    gate = torch.linspace(-9, 9, 1001, device=device)
    wide = gate.double().requires_grad_()
    for approximate in ("none", "tanh"):
        expected = ops.definition("geglu").reference(wide, torch.ones_like(wide), approximate)
        (slope,) = torch.autograd.grad(expected.sum(), wide)
        for backend in KERNELS:
            module = ops.backend_module("geglu", backend)
            x = gate.clone().requires_grad_()
            if module.refusal(x, x, approximate) is None:
                y = module.geglu(x, torch.ones_like(x), approximate)
                torch.testing.assert_close(y.double(), expected, rtol=2e-5, atol=1e-30)
                (got,) = torch.autograd.grad(y.sum(), x)
                torch.testing.assert_close(got.double(), slope, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("strides", [(2, 1), (1, 5), (4, 2), (7, 3)])
def test_up_is_read_where_it_lies(strides: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves of one column are rows at any stride: the other half is not one element on. Launched on no GPU."""
    gate = torch.arange(40.0).as_strided((5, 2), strides)
    launched: list[tuple[int, ...]] = []
    monkeypatch.setattr(glu_cuda, "_bind", lambda *_: lambda *addresses: launched.append(addresses))
    glu_cuda._prepare_forward("silu", gate, None)(gate, None)
    dgate, _ = glu_cuda._prepare_backward("silu", torch.ones(5, 1), gate, None)(torch.ones(5, 1), gate, None)
    forward, backward = launched
    up = gate[:, 1:].data_ptr()
    assert forward[:2] == (gate.data_ptr(), up)
    assert backward[1:] == (gate.data_ptr(), up, dgate.data_ptr(), dgate[:, 1:].data_ptr())


@OF_GEGLU
def test_geglu_names_the_forms_it_has() -> None:
    with pytest.raises(UsageError, match="approximate is 'none' or 'tanh', not 'erf'"):
        ops.geglu(torch.zeros(4), approximate="erf")


@OF_GEGLU
def test_geglu_never_runs_what_is_prepared_for_swiglu(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = torch.zeros(4)
    monkeypatch.setitem(prepared, layout("silu", gate, None), lambda gate, up: pytest.fail("swiglu's launch was run"))
    with pytest.raises(UsageError, match="approximate is 'none' or 'tanh', not 'silu'"):
        ops.geglu(gate, approximate="silu")


@pytest.mark.parametrize(
    ("operator", "name", "options", "activation"),
    [
        ("swiglu", "SwiGLU", {}, F.silu),
        ("geglu", "GEGLU", {}, F.gelu),
        ("geglu", "GEGLU", {"bias": True, "approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
    ],
)
def test_the_modules_are_transformers_mlp_by_their_keys_and_values(
    operator: str, name: str, options: dict[str, Any], activation: Any
) -> None:
    if operator not in GATED:
        pytest.skip(f"no {operator} here")
    module: Any = getattr(nn, name)(6, 10, **options)
    bias = module.down_proj.bias is not None
    kinds = ("weight", "bias") if bias else ("weight",)
    assert list(module.state_dict()) == [f"{name}_proj.{kind}" for name in ("gate", "up", "down") for kind in kinds]
    x = torch.randn(3, 2, 6)
    expected = module.down_proj(activation(module.gate_proj(x)) * module.up_proj(x))
    torch.testing.assert_close(module(x), expected)


@pytest.mark.gpu
@pytest.mark.parametrize(("operator", "kind"), [("swiglu", "SwiGLU"), ("geglu", "GEGLU")])
def test_a_module_on_a_gpu_runs_the_cuda_kernels(operator: str, kind: str, device: torch.device) -> None:
    if operator not in GATED:
        pytest.skip(f"no {operator} here")
    there = getattr(nn, kind)(64, 96)
    here, x = copy.deepcopy(there).double(), torch.randn(3, 2, 64)
    before = [launched(f"{operator}_cuda.{direction}") for direction in ("forward", "backward")]
    y = there.to(device)(x.to(device))
    y.sum().backward()
    after = [launched(f"{operator}_cuda.{direction}") for direction in ("forward", "backward")]
    assert after == [count + 1 for count in before]
    exact = here(x.double())
    exact.sum().backward()
    torch.testing.assert_close(y.double().cpu(), exact, rtol=1e-4, atol=1e-5)
    for ours, right in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.double().cpu(), right.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", GATED)
def test_a_gpu_call_runs_the_cuda_kernel(name: str, device: torch.device) -> None:
    before = launched(f"{name}_cuda.forward")
    getattr(ops, name)(torch.randn(4, 100, device=device))
    assert launched(f"{name}_cuda.forward") == before + 1


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("packed", [False, True])
def test_more_than_two_to_the_31_elements(name: str, packed: bool, device: torch.device) -> None:
    rows, n = 2**21 + 9, 1024
    gate_up = torch.randn(rows, 2 * n, device=device, dtype=torch.bfloat16)
    gate, up = gate_up.chunk(2, -1) if packed else (half.contiguous() for half in gate_up.chunk(2, -1))
    dy = torch.randn(rows, n, device=device, dtype=torch.bfloat16)
    for backend in KERNELS:
        module = ops.backend_module(name, backend)
        given = (gate_up, None) if packed else (gate, up)
        leaves = [x if x is None else x.detach().requires_grad_() for x in given]
        y = getattr(module, name)(*leaves, *_options(name))
        grads = torch.autograd.grad(y, [x for x in leaves if x is not None], dy)
        dgate, dup = grads[0].chunk(2, -1) if packed else grads
        for row in (0, 2**20, rows - 1):
            few = [x[row].double().requires_grad_() for x in (gate, up)]
            expected = ops.definition(name).reference(*few, *_options(name))
            wanted = torch.autograd.grad(expected, few, dy[row].double())
            for got, right in zip((y[row], dgate[row], dup[row]), (expected, *wanted), strict=True):
                torch.testing.assert_close(got, right.bfloat16())
        del y, grads, dgate, dup
