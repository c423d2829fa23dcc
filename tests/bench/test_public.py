"""The public function of every operator takes what a backend takes, and gives what it should."""

import pytest
import torch

from kernelyard import ops
from kernelyard.judge.prove import prove
from kernelyard.suites.library import implementation, public

SOME = 3


@pytest.mark.parametrize("name", ops.operator_names())
def test_the_public_call_is_proved_on_the_inputs_of_a_workload(name: str, device: torch.device) -> None:
    operator = ops.definition(name)
    plain = [workload for workload in operator.workloads if not workload.options][:1]
    special = [workload for workload in operator.workloads if workload.options and 0 not in workload.shape]
    for workload in [*plain, *special[:: max(1, len(special) // SOME)]]:
        proof = prove(operator, public(operator), implementation(name, "eager"), workload, device)
        assert proof.passed, f"{workload.label}: {proof.message}"
