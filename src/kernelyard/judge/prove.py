"""Prove one backend of an operator on one workload: forward, every gradient by name, side effects, determinism."""

import math
import re
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernelyard.core.errors import UsageError, first_line
from kernelyard.core.operator import Implementation, Operator
from kernelyard.core.verdict import ErrorFigures, Record, Status
from kernelyard.core.workload import Workload
from kernelyard.judge.compare import compare, same_bits
from kernelyard.judge.poison import poisoned_empty
from kernelyard.judge.prepare import as_tuple, copies, leaves

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
    walks_once: bool = False
    """A second walk over one graph gave something else, as the candidate declares that it may."""

    @property
    def passed(self) -> bool:
        return self.status == Status.PASSED.value


class Answers:
    """The outputs that a workload's answers are held against, made once for all backends.

    Raises UsageError for a workload that the device's memory does not hold.
    """

    def __init__(
        self,
        operator: Operator,
        honest: Implementation,
        workload: Workload,
        device: torch.device,
        *,
        gradients: bool = True,
    ) -> None:
        self.operator, self.workload, self.device = operator, workload, device
        try:
            self.inputs = operator.make_inputs(workload, device)
            exact = {name: _upcast(value) for name, value in self.inputs.items()}
            self.grads = self._output_grads() if gradients else None
            self.reference = run(operator, operator.reference, exact, self.grads)
            if self.grads and (share := self._fitting()) < 1:
                self.grads = [grad * share for grad in self.grads]
                self.reference = run(operator, operator.reference, exact, self.grads)
            self.honest = run(operator, honest.call, self.inputs, self.grads)
        except (RuntimeError, MemoryError, OverflowError) as error:
            # torch has no class of its own for a CPU that is out of memory, or for a size beyond 64 bits.
            if not re.search("memory|overflow|too large", str(error), re.IGNORECASE):
                raise
            raise UsageError(f"{operator.name} {workload.label}: does not fit the memory of {device}") from None

    def _fitting(self) -> float:
        """What the output gradients have to be multiplied by for every gradient to lie in the dtype's range.

        262144 rows of mean 0.5 add up to more than float16 holds, and where infinity is right nothing is proved.
        """
        sums = [value for name, value in self.reference.items() if name.startswith("grad ") and value.numel()]
        largest = max((value.abs().max().item() for value in sums), default=0.0)
        limit = torch.finfo(self.workload.torch_dtype).max / 4
        return 2.0 ** -math.ceil(math.log2(largest / limit)) if limit < largest < math.inf else 1.0

    def _output_grads(self) -> list[Tensor]:
        """A gradient of each output with mean away from 0, so that a backward that drops a sum cannot pass."""
        with torch.no_grad():
            outputs = as_tuple(self.operator.reference(*self.inputs.values()))
        return [self._output_grad(output, self.workload.seed + 1 + i) for i, output in enumerate(outputs)]

    def _output_grad(self, output: Tensor, seed: int) -> Tensor:
        if output.numel() < 1 << 24:
            grad = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed))
        else:
            generator = torch.Generator(self.device).manual_seed(seed)
            grad = torch.randn(output.shape, generator=generator, device=self.device, dtype=output.dtype)
        return (grad + 0.5).to(device=self.device, dtype=output.dtype)


def run(
    operator: Operator,
    call: Any,
    inputs: dict[str, Any],
    grads: list[Tensor] | None,
    *,
    twice: bool = False,
    overwrites: bool = False,
) -> dict[str, Tensor]:
    """Outputs by name, and `grad NAME` for every differentiable argument that is given. The inputs are not touched.

    Without `grads` no graph is kept: that is the call of a forward pass alone. With `twice` the gradients are those of
    a second walk over the retained graph. A call that `overwrites` what it is given is given copies.
    """
    inputs = copies(inputs) if overwrites else inputs
    if grads is None:
        with torch.no_grad():
            return _named(operator, call(*inputs.values()))
    arguments, wanted = leaves(operator, inputs)
    outputs = _named(operator, call(*arguments))
    given = [grad.to(output.dtype) for output, grad in zip(outputs.values(), grads, strict=True)]

    def walk(*, again: bool = False) -> tuple[Tensor, ...]:
        upstream = [grad.clone() for grad in given] if overwrites else given
        return torch.autograd.grad(list(outputs.values()), list(wanted.values()), upstream, retain_graph=again)

    if wanted and twice:
        walk(again=True)
    gradients = walk() if wanted else ()
    named = {f"grad {name}": value for name, value in zip(wanted, gradients, strict=True)}
    return {**{name: output.detach() for name, output in outputs.items()}, **named}


def _named(operator: Operator, result: Any) -> dict[str, Tensor]:
    outputs = as_tuple(result)
    if len(outputs) != len(operator.outputs):
        raise TypeError(f"{len(outputs)} outputs, expected {len(operator.outputs)}: {', '.join(operator.outputs)}")
    return dict(zip(operator.outputs, outputs, strict=True))


def prove(
    operator: Operator,
    candidate: Implementation,
    honest: Implementation,
    workload: Workload,
    device: torch.device,
    answers: Answers | None = None,
    *,
    gradients: bool = True,
) -> Proof:
    """Run `candidate` on `workload` and hold every output against float64, with `honest` as the ruler.

    Without `gradients` the forward pass is proved alone. A backend that has no backward here sees by its arguments'
    `requires_grad` which of the two is asked for.
    """
    answers = answers or Answers(operator, honest, workload, device, gradients=gradients)

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

    arguments = leaves(operator, answers.inputs)[0] if gradients else answers.inputs.values()
    reason = candidate.refusal(*arguments)
    if reason is not None:
        return proof(REFUSED, reason)
    before = {name: value.clone() for name, value in answers.inputs.items() if isinstance(value, Tensor)}
    try:
        with poisoned_empty():
            run_it = partial(run, operator, candidate.call, answers.inputs, overwrites=candidate.overwrites)
            got = run_it(answers.grads if gradients else None)
            # BACKWARD is timed over a graph that is kept: what a second walk gives is proved too.
            again = run_it(answers.grads if gradients else None, twice=not candidate.walks_once)
            walked = run_it(answers.grads, twice=True) if gradients and candidate.walks_once else again
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
    except Exception as error:
        # Whatever a backend raises is its verdict; the run goes on to the next one.
        return proof(Status.RUNTIME_ERROR.value, first_line(error))

    for name, value in before.items():
        if not same_bits(answers.inputs[name], value):
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
        if not same_bits(value, again[name]):
            return proof(
                Status.NONDETERMINISTIC.value,
                f"{name}: two calls on the same input, or two backward walks over one graph, differ",
                "",
                tuple(errors),
            )
    once = any(not same_bits(value, walked[name]) for name, value in got.items())
    return proof(Status.PASSED.value, errors=tuple(errors)).model_copy(update={"walks_once": once})


def _upcast(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
