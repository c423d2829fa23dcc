"""Proofs of the library's own backends: what their questions are made of."""

import torch

from kernelyard import ops
from kernelyard.core.operator import Backend
from kernelyard.core.workload import Workload
from kernelyard.judge.prove import Answers
from kernelyard.suites.library import implementation

CPU = torch.device("cpu")


def test_gradients_that_half_precision_cannot_hold_are_asked_for_in_its_range() -> None:
    operator, eager = ops.definition("layer_norm"), implementation("layer_norm", Backend.EAGER.value)
    many, few = (Answers(operator, eager, Workload.of(rows, 4, dtype="float16"), CPU) for rows in (262144, 64))
    assert many.reference["grad bias"].abs().max() < torch.finfo(torch.float16).max
    assert many.grads is not None and few.grads is not None
    assert many.grads[0].float().mean() < 0.1 < few.grads[0].float().mean()
