"""SwiGLU: what it takes, what it costs, and the cases it is proved and timed on."""

from kernelyard.core.operator import Cost, Operator
from kernelyard.core.workload import Mode, Workload
from kernelyard.ops import gated
from kernelyard.ops.cases import grid, ladder
from kernelyard.ops.swiglu.reference import swiglu


def cost(workload: Workload, mode: Mode) -> Cost:
    """Operations of an element: forward exponential, add, divide and two products; backward, which does most of it
    again, four products for the gradients and two multiply-adds for the slope."""
    return gated.cost(workload, mode, forward_operations=5, backward_operations=12)


DEFINITION = Operator(
    name="swiglu",
    summary="silu(gate) * up, of two tensors or of one that holds both",
    make_inputs=gated.make_inputs,
    reference=swiglu,
    cost=cost,
    differentiable=("gate", "up"),
    workloads=grid(gated.EVERY_DTYPE, gated.ONCE),
    gpu_workloads=grid(gated.ON_A_GPU),
    sweeps=gated.sweeps,
    targets=gated.TARGETS,
    ladder=ladder,
    workload_of=gated.workload_of,
)
