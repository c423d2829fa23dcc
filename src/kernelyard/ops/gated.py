"""What gated linear units share in their definitions: inputs, cost, the cases they are proved and timed on."""

from typing import Any

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Cost, Sweep
from kernelyard.core.workload import Mode, Workload
from kernelyard.ops.cases import Cases, elements, of_mode, small, to_reach
from kernelyard.ops.inputs import generator_of, laid_out


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    """`gate` of the workload's shape and layout and `up` like it, normally distributed; `up` None with `packed`.

    Options: `packed=True`: the shape is that of gate and up in one tensor; `layout`: as `laid_out` has them, or
    `chunked` for the halves of one tensor; `scale` of the gate's values.
    """
    generator = generator_of(workload, device)
    shape, layout = workload.shape, workload.option("layout", "contiguous")

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(size, dtype=workload.torch_dtype, device=device, generator=generator)

    if layout == "chunked":
        gate, up = draw(*shape[:-1], 2 * shape[-1]).chunk(2, -1)
        return {"gate": gate, "up": up}
    drawn = (1, *shape[1:]) if layout == "expanded" else shape
    gate = laid_out(draw(*drawn) * workload.option("scale", 1), layout, shape)
    return {"gate": gate, "up": None if workload.option("packed", False) else laid_out(draw(*drawn), layout, shape)}


def cost(workload: Workload, mode: Mode, forward_operations: int, backward_operations: int) -> Cost:
    """Forward reads gate and up and writes y; backward reads dy, gate and up and writes both gradients.

    The operations are those of one element of y.
    """
    elements = torch.Size(workload.shape).numel() // (2 if workload.option("packed", False) else 1)
    whole = elements * workload.torch_dtype.itemsize
    repeated = max(workload.shape[0], 1) if workload.option("layout", None) == "expanded" else 1
    inputs = 2 * whole // repeated
    forward = Cost(inputs, whole, forward_operations * elements)
    backward = Cost(whole + inputs, 2 * whole, backward_operations * elements)
    return of_mode(forward, backward, mode)


def workload_of(shape: tuple[int, ...], dtype: str) -> Workload:
    """gate and up of any shape; raises UsageError for a negative size."""
    if any(size < 0 for size in shape):
        raise UsageError(f"gate and up have sizes of 0 or more, not {'x'.join(map(str, shape))}")
    return Workload.of(*shape, dtype=dtype)


def sweeps(dtype: str, device_type: str, **options: Any) -> tuple[Sweep, ...]:
    """Columns at a constant size of the result, apart and packed, and few rows of 4096.

    On a GPU 2^28 elements of 16 bits, 2^27 of 32: 1.6 GB forward and 2.7 GB backward. On a CPU 2^16.
    """
    lengths = (64, 256, 1024, 4096) if device_type == "cpu" else (1024, 4096, 16384, 65536)
    whole = elements(dtype, device_type)
    apart = tuple((n, Workload.of(whole // n, n, dtype=dtype, **options)) for n in lengths)
    packed = tuple((n, Workload.of(whole // n, 2 * n, dtype=dtype, packed=True, **options)) for n in lengths)
    return (
        Sweep(x_name="N", x_label="columns of the result", points=apart),
        Sweep(x_name="N", x_label="columns of the result", points=packed),
        small(dtype, **options),
    )


TARGETS = (to_reach(Mode.FORWARD, 95, 95), to_reach(Mode.BACKWARD, 95, 95))

EVERY_DTYPE: Cases = (
    ((4, 1), {}),
    ((7, 96), {}),
    ((3, 1001), {}),
    ((2, 4099), {}),
    ((5, 64), {"packed": True}),
    ((3, 2 * 173), {"packed": True}),
    ((6, 48), {"layout": "chunked"}),
    ((5, 27), {"layout": "chunked"}),
    ((4, 129), {"layout": "misaligned"}),
    ((6, 100), {"layout": "sliced"}),
    ((9, 130), {"scale": 8}),
)
ONCE: Cases = (
    ((), {}),
    ((13,), {}),
    ((1, 1009), {}),
    ((0, 16), {}),
    ((4, 0), {}),
    ((3, 0), {"packed": True}),
    ((10,), {"packed": True}),
    ((2, 3, 4, 6), {"packed": True}),
    ((2, 3, 40), {"layout": "sliced"}),
    ((3, 4, 2), {"packed": True, "layout": "sliced"}),
    ((64, 48), {"layout": "transposed"}),
    ((12, 30), {"layout": "transposed", "packed": True}),
    ((5, 130), {"layout": "expanded"}),
    ((5, 64), {"layout": "misaligned", "packed": True}),
    ((30, 40), {"scale": 100}),
)
ON_A_GPU: Cases = (
    ((1, 262144), {}),
    ((3, 262145), {}),
    ((300, 11008), {}),
    ((1_000_003, 3), {}),
    ((1031, 1031), {"layout": "misaligned"}),
    ((4096, 4096), {"scale": 3}),
    ((70_000, 8), {"packed": True}),
    ((70_001, 6), {"packed": True}),
    ((501, 2 * 11008), {"packed": True}),
    ((257, 2 * 4099), {"packed": True}),
    ((5, 2 * 262145), {"packed": True}),
    ((333, 5504), {"layout": "chunked"}),
    ((129, 4000), {"layout": "sliced"}),
    ((1000, 1100), {"layout": "transposed"}),
)
