"""Calls of every operator on the plainest workload of its grid, for tests that run over all of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import pytest
import torch

from kernelyard import ops
from kernelyard.core.operator import Backend, Operator
from kernelyard.core.workload import Workload
from kernelyard.judge.prepare import as_tuple, leaves

MOST_ELEMENTS = 1 << 18
KERNELS = (Backend.TRITON, Backend.CUDA)
OPERATORS = [pytest.param(ops.definition(name), id=name) for name in ops.operator_names()]


def cases(backends: tuple[Backend, ...] = KERNELS) -> list[Any]:
    """Every operator with each of those backends that it is written in."""
    return [
        pytest.param(ops.definition(name), backend.value, id=f"{name}-{backend.value}")
        for name in ops.operator_names()
        for backend in ops.backends(name)
        if backend in backends
    ]


def plain(operator: Operator) -> Workload:
    """The first workload of the grid with nothing special about it, a batch to vary, and rows that tell something: of
    one column a softmax is one."""
    return next(w for w in operator.workloads if len(w.shape) > 1 and min(w.shape) > 1 and not w.options)


def some(operator: Operator) -> list[Workload]:
    """A plain call in two dtypes, one along another dim or over images, and one of each length of rows from 1024 on."""
    usual = plain(operator)
    images = [w for w in operator.workloads if w.option("dim", -1) == 1 or w.option("layout", None) == "images"]
    affordable = [w for w in operator.gpu_workloads if 0 < prod(w.shape) <= MOST_ELEMENTS]
    lengths = {w.shape[-1].bit_length(): w for w in affordable if w.shape[-1] >= 1024}
    return [usual, usual.model_copy(update={"dtype": "bfloat16"}), *images[:1], *lengths.values()]


def call_some(operator: Operator, backend: str, device: torch.device) -> int:
    """Forward and gradients of these by the backend's own function; of how many it did not refuse."""
    module, called = ops.backend_module(operator.name, backend), 0
    for workload in some(operator):
        arguments, wanted = leaves(operator, operator.make_inputs(workload, device))
        if module.refusal(*arguments) is None:
            outputs = as_tuple(getattr(module, operator.name)(*arguments))
            torch.autograd.grad(outputs, list(wanted.values()), [torch.ones_like(y) for y in outputs])
            called += 1
    return called


def inputs(operator: Operator, rows: int, device: torch.device, dtype: str = "float32") -> dict[str, Any]:
    """A backend's arguments by name, for `rows` of the plain workload; none wants a gradient."""
    workload = plain(operator)
    shape = (rows, *workload.shape[1:])
    return operator.make_inputs(workload.model_copy(update={"shape": shape, "dtype": dtype, "seed": rows}), device)


def batch(operator: Operator, rows: int, device: torch.device, dtype: str = "float32") -> list[Any]:
    """The arguments of a differentiable call on `rows` of the plain workload."""
    return leaves(operator, inputs(operator, rows, device, dtype))[0]


def kernel(operator: Operator, backend: str, arguments: list[Any]) -> Callable[..., Any]:
    """The backend's own function, which takes the arguments; skips the test for CUDA C++ without a GPU."""
    if backend == Backend.CUDA.value and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    module = ops.backend_module(operator.name, backend)
    reason = module.refusal(*arguments)
    assert reason is None, reason
    return getattr(module, operator.name)


def wanting(arguments: list[Any]) -> list[torch.Tensor]:
    """Those of the arguments that want a gradient."""
    return [item for item in arguments if isinstance(item, torch.Tensor) and item.requires_grad]


def upstream(outputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Gradients of no two equal elements: under equal ones softmax's gradient is zero."""
    each = [torch.linspace(-1.0, 2.0, y.numel(), device=y.device, dtype=torch.float32) for y in outputs]
    return [gradient.view(y.shape).to(y.dtype) for gradient, y in zip(each, outputs, strict=True)]


def same(left: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...]) -> bool:
    """Whether all tensors are equal, bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def replays(run: Callable[..., Any], arguments: list[Any]) -> bool:
    """Whether a CUDA graph of a call and its gradients gives, for other numbers, what the call itself gives."""

    def step() -> tuple[torch.Tensor, ...]:
        outputs = as_tuple(run(*arguments))
        return (*outputs, *torch.autograd.grad(outputs, wanting(arguments), upstream(outputs)))

    with _side_stream():
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    with torch.no_grad():
        for argument in wanting(arguments):
            argument.add_(0.25 * torch.randn_like(argument))
    # Once more: what is zero when a kernel begins has to be so each time.
    graph.replay()
    return same(captured, step())


@contextmanager
def _side_stream() -> Iterator[None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def asked(run: Callable[[], Any], device: torch.device) -> int:
    """Bytes of memory that it asks for, whether or not it gives them back.

    Not the peak above what was there: of a backward before it autograd's thread may still hold the gradients, for a
    moment, which was 134 MB less than nothing on a busy H200.
    """
    if device.type == "cpu":
        with torch.profiler.profile(profile_memory=True) as seen:
            run()
        return sum(event.cpu_memory_usage for event in seen.events() if event.name.startswith("aten::empty"))
    before = _ever_allocated()
    run()
    return _ever_allocated() - before


def _ever_allocated() -> int:
    return int(torch.cuda.memory_stats()["allocated_bytes.all.allocated"])
