"""Every operator, every backend, every workload: forward and every gradient by name, against float64."""

import pytest
import torch

from kernelyard import ops
from kernelyard.core.operator import Backend, Operator
from kernelyard.core.workload import Workload
from kernelyard.judge.prove import REFUSED, prove
from kernelyard.suites.library import implementation, implementations

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


def _prove(operator: Operator, backend: str, workload: Workload, device: torch.device) -> None:
    honest = implementation(operator.name, "eager")
    proof = prove(operator, implementation(operator.name, backend), honest, workload, device)
    if proof.status == REFUSED:
        pytest.skip(f"refused: {proof.message}")
    assert proof.passed, f"{proof.status}: {proof.report or proof.message}"
    given = operator.make_inputs(workload, device)
    gradients = [f"grad {name}" for name in operator.differentiable if given[name] is not None]
    assert [figures.output for figures in proof.errors] == [*operator.outputs, *gradients]


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
def test_every_kernel_runs_somewhere_here(name: str, device: torch.device) -> None:
    """No skip above can hide a backend: only CUDA C++ may decline the whole grid, and only on a CPU."""
    operator = ops.definition(name)
    for candidate in implementations(name):
        declined = [
            candidate.refusal(*operator.make_inputs(workload, device).values()) for workload in operator.workloads
        ]
        if candidate.backend == Backend.CUDA.value and device.type == "cpu":
            assert all(declined), "the cuda backend claims to run on a CPU"
        else:
            assert not all(declined), f"{candidate.backend} declines every workload: {declined[0]}"
