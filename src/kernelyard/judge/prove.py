"""Prove one backend of an operator on one workload: forward, every gradient by name, side effects, determinism."""

import re
from typing import Any

import torch
from torch import Tensor

from kernelyard.core.errors import UsageError, first_line
from kernelyard.core.operator import Implementation, Operator
from kernelyard.core.verdict import ErrorFigures, Record, Status
from kernelyard.core.workload import Workload
from kernelyard.judge.compare import compare
from kernelyard.judge.poison import poisoned_empty

REFUSED = "refused"
"""The status of a backend that declines this input here; no verdict on its correctness."""


class Proof(Record):
    """What came of it."""

    operator: str
    backend: str
    workload: str
    status: str
    """A `Status` value, or `refused`."""
    message: str = ""
    report: str = ""
    """On a mismatch: how many elements differ, the worst, and the first five."""
    errors: tuple[ErrorFigures, ...] = ()

    @property
    def passed(self) -> bool:
        return self.status == Status.PASSED.value


class Answers:
    """The outputs that a workload's answers are held against, made once for all backends.

    Raises UsageError for a workload that the device's memory does not hold.
    """

    def __init__(self, operator: Operator, honest: Implementation, workload: Workload, device: torch.device) -> None:
        self.operator, self.workload, self.device = operator, workload, device
        try:
            self.inputs = operator.make_inputs(workload, device)
            exact = {name: _upcast(value) for name, value in self.inputs.items()}
            self.grad = self._output_grad()
            self.reference = run(operator, operator.reference, exact, self.grad)
            self.honest = run(operator, honest.call, self.inputs, self.grad)
        except (RuntimeError, MemoryError, OverflowError) as error:
            # torch has no class of its own for a CPU that is out of memory, or for a size beyond 64 bits.
            if not re.search("memory|overflow|too large", str(error), re.IGNORECASE):
                raise
            raise UsageError(f"{operator.name} {workload.label}: does not fit the memory of {device}") from None

    def _output_grad(self) -> Tensor:
        """A gradient of the output with mean away from 0, so that a backward that drops a sum cannot pass."""
        with torch.no_grad():
            output = self.operator.reference(*self.inputs.values())
        generator = torch.Generator().manual_seed(self.workload.seed + 1)
        grad = torch.randn(output.shape, generator=generator) if output.numel() < 1 << 24 else None
        if grad is None:
            generator = torch.Generator(self.device).manual_seed(self.workload.seed + 1)
            grad = torch.randn(output.shape, generator=generator, device=self.device, dtype=output.dtype)
        return (grad + 0.5).to(device=self.device, dtype=output.dtype)


def run(operator: Operator, call: Any, inputs: dict[str, Any], grad: Tensor) -> dict[str, Tensor]:
    """Outputs by name: `output`, and `grad NAME` for every differentiable argument. The inputs are not touched."""
    leaves = {
        name: value.detach().requires_grad_() if name in operator.differentiable else value
        for name, value in inputs.items()
    }
    output = call(*leaves.values())
    wanted = [leaves[name] for name in operator.differentiable]
    gradients = torch.autograd.grad(output, wanted, grad.to(output.dtype)) if wanted else ()
    named = {f"grad {name}": value for name, value in zip(operator.differentiable, gradients, strict=True)}
    return {"output": output.detach(), **named}


def prove(
    operator: Operator,
    candidate: Implementation,
    honest: Implementation,
    workload: Workload,
    device: torch.device,
    answers: Answers | None = None,
) -> Proof:
    """Run `candidate` on `workload` and hold every output against float64, with `honest` as the ruler."""
    answers = answers or Answers(operator, honest, workload, device)

    def proof(status: str, message: str = "", report: str = "", errors: tuple[ErrorFigures, ...] = ()) -> Proof:
        return Proof(
            operator=operator.name,
            backend=candidate.backend,
            workload=workload.label,
            status=status,
            message=message,
            report=report,
            errors=errors,
        )

    reason = candidate.refusal(*answers.inputs.values())
    if reason is not None:
        return proof(REFUSED, reason)
    before = {name: value.clone() for name, value in answers.inputs.items() if isinstance(value, Tensor)}
    try:
        with poisoned_empty():
            got = run(operator, candidate.call, answers.inputs, answers.grad)
            again = run(operator, candidate.call, answers.inputs, answers.grad)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
    except Exception as error:
        # Whatever a backend raises is its verdict; the run goes on to the next one.
        return proof(Status.RUNTIME_ERROR.value, first_line(error))

    for name, value in before.items():
        if not _same_bits(answers.inputs[name], value):
            return proof(Status.INPUT_MUTATED.value, f"{name} changed during the call")
    errors: list[ErrorFigures] = []
    for name, value in got.items():
        held = compare(
            name,
            value,
            answers.reference[name],
            answers.honest[name],
            operator.tolerance,
            allow_nonfinite=True,
        )
        errors += [held.figures] if held.figures else []
        if not held.passed:
            return proof(held.status.value, held.message, held.report, tuple(errors))
        if not _same_bits(value, again[name]):
            return proof(
                Status.NONDETERMINISTIC.value,
                f"{name}: two calls on the same input differ",
                "",
                tuple(errors),
            )
    return proof(Status.PASSED.value, errors=tuple(errors))


def _upcast(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _same_bits(left: Tensor, right: Tensor) -> bool:
    return torch.equal(left.nan_to_num(nan=1234.5), right.nan_to_num(nan=1234.5)) and torch.equal(
        left.isnan(), right.isnan()
    )
