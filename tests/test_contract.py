"""Every operator, every backend, every workload: forward and every gradient by name, against float64."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernelyard import ops
from kernelyard.core.operator import Backend, Operator
from kernelyard.core.workload import Workload
from kernelyard.judge.prepare import leaves
from kernelyard.judge.prove import REFUSED, prove
from kernelyard.kernels.counters import counts
from kernelyard.suites.library import implementation, implementations

KERNELS = (Backend.TRITON.value, Backend.CUDA.value)
# torch.compile takes seconds for each new shape and dtype; on a CPU three shapes prove what fifty would.
COMPILED_ON_CPU = 3


def _cases(grid: str) -> list[object]:
    cases = []
    for name in ops.operator_names():
        operator = ops.definition(name)
        for backend in ops.backends(name):
            workloads = getattr(operator, grid)
            if backend is Backend.COMPILE and grid == "workloads" and not torch.cuda.is_available():
                workloads = workloads[:COMPILED_ON_CPU]
            cases += [
                pytest.param(operator, backend.value, workload, id=f"{name}-{backend.value}-{workload.label}")
                for workload in workloads
            ]
    return cases


def _needs_a_gpu(backend: str, device: torch.device) -> bool:
    return backend == Backend.CUDA.value and device.type == "cpu"


def _launched_since(before: Counter[str]) -> Counter[str]:
    """The library's own kernels, by name."""
    return Counter(counts()) - before


def _prove(operator: Operator, backend: str, workload: Workload, device: torch.device) -> None:
    candidate, honest = (implementation(operator.name, name) for name in (backend, Backend.EAGER))
    forward: Counter[str] = Counter()

    def call(*arguments: Any) -> Any:
        before = Counter(counts())
        outputs = candidate.call(*arguments)
        forward.update(_launched_since(before))
        return outputs

    before = Counter(counts())
    proof = prove(operator, replace(candidate, call=call), honest, workload, device)
    if proof.status == REFUSED and _needs_a_gpu(backend, device):
        pytest.skip(proof.message)
    # Whatever else is refused has been taken before.
    assert proof.passed, f"{proof.status}: {proof.report or proof.message}"
    given = operator.make_inputs(workload, device)
    gradients = [f"grad {name}" for name in operator.differentiable if given[name] is not None]
    assert [figures.output for figures in proof.errors] == [*operator.outputs, *gradients]
    launched = _launched_since(before)
    assert all(name.partition(".")[0].endswith(f"_{backend}") for name in launched), f"others' kernels: {launched}"
    if backend in KERNELS and all(x.numel() for x in given.values() if isinstance(x, torch.Tensor)):
        assert forward, "no kernel of its own in the forward pass"
        assert launched - forward, "no kernel of its own in the backward pass"


@pytest.mark.parametrize(("operator", "backend", "workload"), _cases("workloads"))
def test_backend_is_right(operator: Operator, backend: str, workload: Workload, device: torch.device) -> None:
    _prove(operator, backend, workload, device)


@pytest.mark.gpu
@pytest.mark.parametrize(("operator", "backend", "workload"), _cases("gpu_workloads"))
def test_backend_is_right_on_large_workloads(
    operator: Operator, backend: str, workload: Workload, device: torch.device
) -> None:
    _prove(operator, backend, workload, device)


@pytest.mark.parametrize("name", ops.operator_names())
def test_a_backend_takes_its_whole_grid(name: str, device: torch.device) -> None:
    """Without a GPU CUDA C++ declines all of it. Nothing else declines any, what compile is not proved on included."""
    operator = ops.definition(name)
    for candidate in implementations(name):
        declined = [
            candidate.refusal(*leaves(operator, operator.make_inputs(workload, device))[0])
            for workload in operator.workloads
        ]
        if _needs_a_gpu(candidate.backend, device):
            assert all(declined), "the cuda backend claims to run on a CPU"
        else:
            assert not any(declined), f"{candidate.backend}: {declined}"
