"""The library's operators as problems, on the inputs of their ladders' workloads.

A problem's Model computes what eager torch does, and in float64 the definition's reference, as in `kernelyard check`.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelyard import ops
from kernelyard.core.operator import Backend
from kernelyard.core.problem import Problem, Source
from kernelyard.core.workload import Workload, dtype_name
from kernelyard.suites.library import implementation


def operator_problem(name: str, dtype: torch.dtype, device_type: str) -> Problem:
    """The problem of one operator; raises UsageError for a name that is not there."""
    operator = ops.definition(name)
    eager = implementation(name, Backend.EAGER.value)
    workload = operator.ladder(device_type)

    class Model(nn.Module):
        def forward(self, *arguments: Any) -> Any:
            exact = any(isinstance(value, torch.Tensor) and value.dtype is torch.float64 for value in arguments)
            return (operator.reference if exact else eager.call)(*arguments)

    def get_inputs() -> list[Any]:
        seed = int(torch.randint(2**31, ()))
        drawn = Workload(shape=workload.shape, dtype=dtype_name(dtype), options=workload.options, seed=seed)
        return list(operator.make_inputs(drawn, torch.get_default_device()).values())

    text = (Path(ops.__path__[0]) / name / "definition.py").read_text()
    return Problem(Source(Path(name), text), Model, get_inputs, list)
