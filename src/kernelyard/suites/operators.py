"""The library's operators as problems in KernelBench's format, on the inputs of their ladders' workloads.

A problem's Model computes what eager torch does, and in float64 the definition's reference, as in `kernelyard check`.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch

from kernelyard import ops
from kernelyard.core.operator import Backend
from kernelyard.core.problem import Problem, Source
from kernelyard.core.workload import Workload
from kernelyard.suites.kernelbench import problem_of
from kernelyard.suites.library import implementation

# A worker runs the baseline from this text alone; the hash tells apart two versions of the operator.
TEXT = '''"""{name} of the library, {dtype}, on its ladder's workload for {device_type}; definition {sha256}."""

from torch import nn

from kernelyard.suites.operators import answered, drawn


class Model(nn.Module):
    def forward(self, *arguments):
        return answered({name!r}, arguments)


def get_inputs():
    return drawn({name!r}, {dtype!r}, {device_type!r})


def get_init_inputs():
    return []
'''


def operator_source(name: str, dtype: str, device_type: str) -> Source:
    """The problem file of one operator in a dtype of torch's name; raises UsageError for an operator not there."""
    ops.definition(name)
    folder = Path(ops.__path__[0]) / name
    said = b"".join((folder / file).read_bytes() for file in ("definition.py", "reference.py", "eager.py"))
    sha256 = hashlib.sha256(said).hexdigest()
    return Source(Path(f"{name}.py"), TEXT.format(name=name, dtype=dtype, device_type=device_type, sha256=sha256))


def operator_problem(name: str, dtype: str, device_type: str) -> Problem:
    """The problem of one operator, loaded."""
    return problem_of(operator_source(name, dtype, device_type))


def answered(name: str, arguments: tuple[Any, ...]) -> Any:
    """What eager torch answers; in float64 the definition's reference."""
    exact = any(isinstance(value, torch.Tensor) and value.dtype is torch.float64 for value in arguments)
    call = ops.definition(name).reference if exact else implementation(name, Backend.EAGER.value).call
    return call(*arguments)


def drawn(name: str, dtype: str, device_type: str) -> list[Any]:
    """Inputs of the ladder's workload on torch's default device, from torch's own random state."""
    operator = ops.definition(name)
    workload = operator.ladder(device_type)
    seed = int(torch.randint(2**31, (), device="cpu"))
    asked = Workload(shape=workload.shape, dtype=dtype, options=workload.options, seed=seed)
    return list(operator.make_inputs(asked, torch.get_default_device()).values())
