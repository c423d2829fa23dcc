"""The library's operators as problems: the reference of a definition, on the inputs of its ladder's workload."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelyard import ops
from kernelyard.core.problem import Problem, Source
from kernelyard.core.workload import Workload, dtype_name


def operator_problem(name: str, dtype: torch.dtype, device_type: str) -> Problem:
    """The problem of one operator; raises UsageError for a name that is not there."""
    operator = ops.definition(name)
    workload = operator.ladder(device_type)

    class Model(nn.Module):
        def forward(self, *arguments: Any) -> Any:
            return operator.reference(*arguments)

    def get_inputs() -> list[Any]:
        seed = int(torch.randint(2**31, ()))
        drawn = Workload(shape=workload.shape, dtype=dtype_name(dtype), options=workload.options, seed=seed)
        return list(operator.make_inputs(drawn, torch.get_default_device()).values())

    text = (Path(ops.__path__[0]) / name / "definition.py").read_text()
    return Problem(Source(Path(name), text), Model, get_inputs, list)
