"""What every operator promises its users, whichever it is: each test runs over all operators and their kernels."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelyard import ops
from kernelyard.core.operator import Backend, Operator
from kernelyard.core.workload import DTYPES, Workload
from kernelyard.judge.prepare import as_tuple, leaves
from kernelyard.kernels.counters import launched

KERNELS = (Backend.TRITON, Backend.CUDA)
BATCHES = (3, 5, 8)


def _cases(backends: tuple[Backend, ...] = KERNELS) -> list[Any]:
    return [
        pytest.param(ops.definition(name), backend.value, id=f"{name}-{backend.value}")
        for name in ops.operator_names()
        for backend in ops.backends(name)
        if backend in backends
    ]


def _plain(operator: Operator) -> Workload:
    """The first workload of the grid with nothing special about it and a batch to vary."""
    return next(w for w in operator.workloads if len(w.shape) > 1 and 0 not in w.shape and not w.options)


def _batch(operator: Operator, rows: int, device: torch.device, dtype: str = "float32") -> list[Any]:
    """The arguments of a differentiable call on `rows` of the plain workload."""
    plain = _plain(operator)
    workload = plain.model_copy(update={"shape": (rows, *plain.shape[1:]), "dtype": dtype, "seed": rows})
    return leaves(operator, operator.make_inputs(workload, device))[0]


def _kernel(operator: Operator, backend: str, arguments: list[Any]) -> Callable[..., Any]:
    module = ops.backend_module(operator.name, backend)
    if (reason := module.refusal(*arguments)) is not None:
        pytest.skip(f"refused: {reason}")
    return getattr(module, operator.name)


def _wanting(arguments: list[Any]) -> list[torch.Tensor]:
    return [item for item in arguments if isinstance(item, torch.Tensor) and item.requires_grad]


def _same(left: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


class _Recorder(TorchDispatchMode):
    """Notes every call of one of our registered operators."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "kernelyard":
            self.calls.append((func, tuple(a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args)))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("operator", "backend"), _cases())
def test_every_registered_operator_passes_opcheck(operator: Operator, backend: str, device: torch.device) -> None:
    arguments = _batch(operator, 3, device)
    kernel = _kernel(operator, backend, arguments)
    with _Recorder() as recorder:
        outputs = as_tuple(kernel(*arguments))
        torch.autograd.grad(outputs, _wanting(arguments), [torch.ones_like(y) for y in outputs])
    names = [func._schema.name for func, _ in recorder.calls]
    assert any(name.endswith("backward") for name in names), f"no backward operator was called, only {names}"
    for func, given in recorder.calls:
        if not func._schema.name.endswith("backward"):
            given = tuple(
                a.requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in given
            )
        torch.library.opcheck(func, given)


@pytest.mark.parametrize(("operator", "backend"), _cases((Backend.COMPILE, *KERNELS)))
def test_compiles_without_breaks_for_a_dynamic_batch(operator: Operator, backend: str, device: torch.device) -> None:
    kernel = _kernel(operator, backend, _batch(operator, 3, device))
    fixed, varied = _batch(operator, 3, device), _batch(operator, 5, device)
    moving = [
        isinstance(a, torch.Tensor) and a.dim() > 0 and a.shape[0] != b.shape[0]
        for a, b in zip(fixed, varied, strict=True)
    ]

    def call(*arguments: Any) -> Any:
        return tuple(y * 2 for y in as_tuple(kernel(*arguments)))

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for rows in BATCHES:
        arguments, same = _batch(operator, rows, device), _batch(operator, rows, device)
        for argument, moves in zip(arguments, moving, strict=True):
            if moves:
                torch._dynamo.mark_dynamic(argument, 0)
        got, expected = compiled(*arguments), call(*same)
        torch.testing.assert_close(got, expected)
        grads = [torch.ones_like(y) for y in got]
        torch.testing.assert_close(
            torch.autograd.grad(got, _wanting(arguments), grads),
            torch.autograd.grad(expected, _wanting(same), grads),
        )


@pytest.mark.parametrize(("operator", "backend"), _cases())
def test_a_graph_can_be_walked_twice_and_gradients_may_be_views(
    operator: Operator, backend: str, device: torch.device
) -> None:
    arguments = _batch(operator, 5, device)
    outputs = as_tuple(_kernel(operator, backend, arguments)(*arguments))
    wanted = _wanting(arguments)
    expanded = [torch.randn((), device=device).expand(y.shape) for y in outputs]
    first = torch.autograd.grad(outputs, wanted, expanded, retain_graph=True)
    assert _same(first, torch.autograd.grad(outputs, wanted, expanded, retain_graph=True))
    assert _same(first, torch.autograd.grad(outputs, wanted, [g.contiguous() for g in expanded], retain_graph=True))
    dense = [torch.randn(y.shape, device=device) for y in outputs]
    strided = [g.mT.contiguous().mT if g.dim() > 1 else torch.stack((g, g), -1)[..., 0] for g in dense]
    assert _same(
        torch.autograd.grad(outputs, wanted, strided, retain_graph=True),
        torch.autograd.grad(outputs, wanted, dense, retain_graph=True),
    )
    assert _same(first, torch.autograd.grad(outputs, wanted, expanded))


@pytest.mark.parametrize(("operator", "backend"), _cases())
def test_autocast_changes_nothing(operator: Operator, backend: str, device: torch.device) -> None:
    arguments = _batch(operator, 5, device)
    kernel = _kernel(operator, backend, arguments)
    plain = as_tuple(kernel(*arguments))
    with torch.autocast(device.type, dtype=torch.bfloat16):
        cast = as_tuple(kernel(*arguments))
        grads = torch.autograd.grad(cast, _wanting(arguments), [torch.ones_like(y) for y in cast])
    assert _same(plain, cast)
    assert _same(grads, torch.autograd.grad(plain, _wanting(arguments), [torch.ones_like(y) for y in plain]))


@pytest.mark.parametrize(("operator", "backend"), _cases())
def test_a_call_that_wants_no_gradient_keeps_no_graph(operator: Operator, backend: str, device: torch.device) -> None:
    arguments = _batch(operator, 5, device)
    kernel = _kernel(operator, backend, arguments)
    before = launched()
    with torch.no_grad():
        quiet = as_tuple(kernel(*arguments))
    assert launched() > before, "no launch was counted"
    assert not any(y.requires_grad for y in quiet)
    loud = as_tuple(kernel(*arguments))
    assert all(y.requires_grad for y in loud)
    assert _same(quiet, loud)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("operator", "backend"), _cases())
def test_a_cuda_graph_replays_forward_and_backward(
    operator: Operator, backend: str, dtype: str, device: torch.device
) -> None:
    arguments = _batch(operator, 64, device, dtype)
    kernel = _kernel(operator, backend, arguments)

    def step() -> tuple[torch.Tensor, ...]:
        outputs = as_tuple(kernel(*arguments))
        return (*outputs, *torch.autograd.grad(outputs, _wanting(arguments), [torch.ones_like(y) for y in outputs]))

    with _side_stream():
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        for argument in _wanting(arguments):
            argument.add_(0.25)
    graph.replay()
    assert _same(captured, step())


@contextmanager
def _side_stream() -> Iterator[None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


@pytest.mark.gpu
@pytest.mark.parametrize(("operator", "backend"), _cases())
def test_runs_on_the_tensors_own_device(operator: Operator, backend: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    second, first = torch.device("cuda", 1), torch.device("cuda", 0)
    arguments, same = _batch(operator, 7, second), _batch(operator, 7, first)
    for there, here in zip(arguments, same, strict=True):
        if isinstance(here, torch.Tensor):
            with torch.no_grad():
                here.copy_(there)
    with torch.cuda.device(first):
        kernel = _kernel(operator, backend, arguments)
        got, expected = as_tuple(kernel(*arguments)), as_tuple(kernel(*same))
        assert all(y.device == second for y in got)
        assert _same(tuple(y.to(first) for y in got), expected)
        grads = torch.autograd.grad(got, _wanting(arguments), [torch.ones_like(y) for y in got])
        back = torch.autograd.grad(expected, _wanting(same), [torch.ones_like(y) for y in expected])
        assert _same(tuple(g.to(first) for g in grads), back)


FIRST_CALL = """
import sys, time, torch
import kernelyard.ops as ops
from kernelyard.core.workload import Workload
torch.zeros(1, device="cuda")
name = sys.argv[1]
operator, module = ops.definition(name), ops.backend_module(name, "cuda")
inputs = operator.make_inputs(operator.workload_of(PLAIN_SHAPE, "bfloat16"), torch.device("cuda", 0))
torch.cuda.synchronize()
begin = time.perf_counter()
getattr(module, name)(*inputs.values())
torch.cuda.synchronize()
print(time.perf_counter() - begin)
"""


@pytest.mark.gpu
@pytest.mark.parametrize(("operator", "backend"), _cases((Backend.CUDA,)))
def test_the_first_call_is_quick_without_a_cache_and_instant_with_one(
    operator: Operator, backend: str, tmp_path: Any, device: torch.device
) -> None:
    code = FIRST_CALL.replace("PLAIN_SHAPE", repr(_plain(operator).shape))
    environment = {**os.environ, "KERNELYARD_CACHE": str(tmp_path)}
    seconds = [
        float(subprocess.check_output([sys.executable, "-c", code, operator.name], env=environment, text=True))
        for _ in range(2)
    ]
    assert seconds[0] < 1.5, f"{seconds[0]:.2f} s without a cache"
    assert seconds[1] < 0.02, f"{1000 * seconds[1]:.1f} ms with a cache"
