"""What the rungs that torch compiles do not take: no call is run eagerly under their names."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from plain_calls import OPERATORS, inputs

from kernelyard import ops
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Operator

CPU = torch.device("cpu")


def _said(operator: Operator, backend: str, given: dict[str, Any]) -> str:
    """What the public call is refused with."""
    positional, named = operator.public_arguments(*given.values())
    with pytest.raises(UsageError) as caught:
        getattr(ops, operator.name)(*positional, **named, backend=backend)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"the {backend} backend of {operator.name} does not take")
    return message


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_compile_rung_runs_nothing_where_a_stance_forces_eager(operator: Operator) -> None:
    given = inputs(operator, 3, CPU)
    with torch.compiler.set_stance("force_eager"):
        assert _said(operator, "compile", given).endswith("needs torch.compile's default stance, not 'force_eager'")


@contextmanager
def _without_torchscript() -> Iterator[None]:
    torch.jit._state.disable()
    try:
        yield
    finally:
        torch.jit._state.enable()


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_torchscript_rung_runs_nothing_where_it_is_switched_off(operator: Operator) -> None:
    given = inputs(operator, 3, CPU)
    with _without_torchscript():
        assert _said(operator, "torchscript", given).endswith("needs TorchScript, which PYTORCH_JIT=0 switches off")


@pytest.mark.parametrize("backend", ["torchscript", "compile"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_no_vmap_goes_through_what_is_compiled_for_exact_shapes(operator: Operator, backend: str) -> None:
    given, name = inputs(operator, 3, CPU), operator.differentiable[0]

    def call(x: torch.Tensor) -> torch.Tensor:
        assert _said(operator, backend, {**given, name: x}).endswith("is not batched by torch.vmap")
        return x

    torch.vmap(call)(torch.stack((given[name], given[name])))


SWITCHED = """
import sys
from plain_calls import inputs
from kernelyard import ops
from kernelyard.core.errors import UsageError
import torch
for name in ops.operator_names():
    operator = ops.definition(name)
    positional, named = operator.public_arguments(*inputs(operator, 3, torch.device("cpu")).values())
    try:
        getattr(ops, name)(*positional, **named, backend=sys.argv[1])
        print("runs")
    except UsageError as error:
        print(str(error).rpartition(": ")[2])
print("torch._dynamo.eval_frame" in sys.modules)
"""


@pytest.mark.parametrize(
    ("switch", "backend", "reason"),
    [
        ("TORCHDYNAMO_DISABLE=1", "compile", "needs torch.compile, which TORCHDYNAMO_DISABLE=1 switches off"),
        ("TORCH_COMPILE_DISABLE=1", "compile", "needs torch.compile, which TORCH_COMPILE_DISABLE=1 switches off"),
        ("PYTORCH_JIT=0", "torchscript", "needs TorchScript, which PYTORCH_JIT=0 switches off"),
    ],
)
def test_what_the_environment_switches_off_is_refused(switch: str, backend: str, reason: str) -> None:
    """And refusing imports no compiler: Dynamo alone is a second."""
    name, _, value = switch.partition("=")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), name: value}
    said = subprocess.check_output([sys.executable, "-c", SWITCHED, backend], env=environment, text=True).splitlines()
    assert said == [reason] * len(ops.operator_names()) + ["False"]
