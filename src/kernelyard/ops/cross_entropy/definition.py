"""Cross entropy: what it takes, what it costs, and the cases it is proved and timed on."""

from typing import Any

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Cost, Operator, Sweep
from kernelyard.core.workload import Mode, Workload
from kernelyard.ops.cases import Cases, by_length, grid, small, to_reach
from kernelyard.ops.cross_entropy.reference import cross_entropy
from kernelyard.ops.inputs import generator_of, laid_out

VOCABULARIES = (32000, 50257, 128256, 151936, 262144)
"""Llama 2, GPT-2, Llama 3, Qwen 2.5, Gemma 3."""


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    """`input` of the workload's shape, classes last, normally distributed; `target`, uniform over the classes; options.

    Options: `ignore_index`, `reduction`, `label_smoothing`, `z_loss`; `ignored`: the share of rows that count for
    nothing; `target`: its dtype; `layout` (contiguous, sliced, expanded, misaligned, transposed; `shifted`: without
    the last of the rows of each batch; `images`: the classes lie in dim 1, as torch has them); `scale` and `shift` of
    the logits; `masked=True` for minus infinity in about a third of them, never at the target.
    """
    generator = generator_of(workload, device)
    shape, layout = workload.shape, workload.option("layout", "contiguous")
    ignore_index = workload.option("ignore_index", -100)
    target = torch.randint(max(shape[-1], 1), shape[:-1], generator=generator, device=device)
    made = (1, *shape[1:]) if layout == "expanded" else shape
    if layout == "shifted":
        made = (*shape[:-2], shape[-2] + 1, shape[-1])
    input = torch.randn(made, dtype=workload.torch_dtype, device=device, generator=generator)
    input.mul_(workload.option("scale", 1)).add_(workload.option("shift", 0))
    if workload.option("masked", False):
        mask = torch.rand(made, device=device, generator=generator) < 1 / 3
        input.masked_fill_(mask.scatter(-1, target[..., None], False), float("-inf"))
    if layout == "shifted":
        input = input[..., :-1, :]
    elif layout == "images":
        input = input.movedim(-1, 1).contiguous().movedim(1, -1)
    else:
        input = laid_out(input, layout, shape)
    ignored = workload.option("ignored", 0)
    if ignored:
        target[torch.rand(target.shape, device=device, generator=generator) < ignored] = ignore_index
    return {
        "input": input,
        "target": target.to(getattr(torch, workload.option("target", "int64"))),
        "ignore_index": ignore_index,
        "reduction": workload.option("reduction", "mean"),
        "label_smoothing": workload.option("label_smoothing", 0.0),
        "z_loss": workload.option("z_loss", 0.0),
    }


def public_arguments(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of `kernelyard.ops.cross_entropy`, for a backend's: torch has the classes in dim 1."""
    logits = input.movedim(-1, 1) if input.dim() > 2 else input
    options = {"ignore_index": ignore_index, "reduction": reduction}
    return (logits, target), {**options, "label_smoothing": label_smoothing, "z_loss": z_loss}


def cost(workload: Workload, mode: Mode) -> Cost:
    """Forward reads the logits; backward reads them and writes their gradient; both together do that once.

    Operations per element, an exponential counted as one: forward compare, subtract, exponential, add; the gradient
    multiply and subtract.
    """
    elements, size = torch.Size(workload.shape).numel(), workload.torch_dtype.itemsize
    rows = torch.Size(workload.shape[:-1]).numel()
    whole = elements * size
    repeated = workload.shape[0] if workload.option("layout", None) == "expanded" else 1
    read = whole // max(repeated, 1) + rows * getattr(torch, workload.option("target", "int64")).itemsize
    loss = size * (rows if workload.option("reduction", "mean") == "none" else 1)
    if mode is Mode.FORWARD:
        return Cost(read, loss, 4 * elements)
    if mode is Mode.BACKWARD:
        return Cost(read, whole, 4 * elements)
    return Cost(read, whole + loss, 6 * elements)


def workload_of(shape: tuple[int, ...], dtype: str) -> Workload:
    """Mean cross entropy over the last dim; raises UsageError for a shape without classes."""
    if not shape or any(size < 0 for size in shape) or not shape[-1]:
        raise UsageError(f"cross_entropy takes a shape that ends in the classes, not {'x'.join(map(str, shape))}")
    return Workload.of(*shape, dtype=dtype)


def sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    """Classes at a constant size, 512 MiB on a GPU and 2^16 elements on a CPU; real vocabularies; few rows."""
    classes = by_length(dtype, device_type, "classes")
    if device_type == "cpu":
        return (classes,)
    vocabularies = tuple((n, Workload.of(4096, n, dtype=dtype)) for n in VOCABULARIES)
    return (
        classes,
        Sweep(x_name="V", x_label="vocabulary, 4096 tokens", points=vocabularies, modes=(Mode.FORWARD, Mode.FULL)),
        Sweep(
            x_name="C", x_label="classes of 512 x 512 images", points=_images(dtype), modes=(Mode.FORWARD, Mode.FULL)
        ),
        small(dtype),
    )


def _images(dtype: str) -> tuple[tuple[int, Workload], ...]:
    """About 2^28 elements of 16 bits and half as many of 32, of the classes of Cityscapes and of ADE20K."""
    images = {19: 48, 150: 6}
    share = 2 if dtype == "float32" else 1
    return tuple((c, Workload.of(n // share, 512, 512, c, dtype=dtype, layout="images")) for c, n in images.items())


def ladder(device_type: str) -> Workload:
    """4096 tokens of a vocabulary of 32000 on a GPU; small enough for Triton's interpreter on a CPU."""
    return Workload.of(64, 1000) if device_type == "cpu" else Workload.of(4096, 32000, dtype="bfloat16")


_EVERY_DTYPE: Cases = (
    ((5, 33), {}),
    ((3, 1000), {"reduction": "none"}),
    ((7, 96), {"reduction": "sum", "label_smoothing": 0.1, "z_loss": 1e-3}),
    ((9, 257), {"ignored": 0.4, "label_smoothing": 0.1}),
    ((4, 1), {}),
    ((2, 1025), {"reduction": "none", "z_loss": 1e-2, "ignored": 0.5}),
    ((1, 4099), {"target": "int32"}),
    ((6, 100), {"layout": "sliced"}),
    ((4, 129), {"layout": "misaligned", "label_smoothing": 0.2}),
    ((2, 5, 8, 19), {"layout": "images"}),
    ((16, 67), {"scale": 64}),
    ((4, 200), {"masked": True, "scale": 8, "shift": -1000}),
)
_ONCE: Cases = (
    ((13,), {}),
    ((0, 16), {}),
    ((0, 16), {"reduction": "sum"}),
    ((0, 16), {"reduction": "none"}),
    ((6, 40), {"ignored": 1.1}),
    ((6, 40), {"ignored": 1.1, "reduction": "none"}),
    ((6, 40), {"ignored": 0.3, "ignore_index": 7}),
    ((2, 3, 50), {"reduction": "none"}),
    ((2, 4, 40), {"layout": "shifted"}),
    ((2, 2, 3, 40), {"layout": "shifted", "reduction": "sum"}),
    ((5, 130), {"layout": "expanded"}),
    ((40, 24), {"layout": "transposed"}),
    ((2, 5, 7, 19), {"layout": "images", "reduction": "none", "ignored": 0.3, "label_smoothing": 0.1, "z_loss": 1e-3}),
    ((3, 33, 40), {"layout": "images", "reduction": "sum", "masked": True, "label_smoothing": 0.1}),
    ((2, 4, 4, 3), {"layout": "images", "scale": 8, "shift": 1000, "label_smoothing": 0.1}),
    ((4, 200), {"masked": True, "label_smoothing": 0.1}),
    ((8, 300), {"scale": 8, "shift": 1000, "label_smoothing": 0.1, "z_loss": 1e-4}),
    ((3, 50), {"scale": 1e30}),
    # Each row's log-probabilities add up to more than float16 holds, and so do both rows.
    ((2, 9001), {"dtype": "float16", "label_smoothing": 0.1}),
    ((3000, 3), {"ignored": 0.1}),
)
# Powers of two and their neighbours stand at the ends of every launch setting's range.
_SHORT = (1024, 2047, 2048, 4096, 4099, 8192, 8200, 16384, 16385, 32768, 32771, 65536, 65541)
_LONG = (131072, 200_003, 262145, 300_000, 524_288, 1_048_576, *VOCABULARIES)
_GPU: Cases = (
    *[((5, n), {}) for n in (*_SHORT, *_LONG)],
    ((300, 8192), {"ignored": 0.2}),
    ((200, 50257), {"reduction": "none", "ignored": 0.1, "label_smoothing": 0.1, "z_loss": 1e-4}),
    ((3, 16384), {"layout": "misaligned"}),
    ((3, 40_000), {"layout": "sliced", "label_smoothing": 0.1}),
    ((3, 5, 32000), {"layout": "shifted"}),
    ((3, 7, 4099), {"layout": "shifted", "reduction": "none"}),
    ((7, 30_000), {"layout": "expanded"}),
    ((2, 4_000_037), {"label_smoothing": 0.1, "z_loss": 1e-4}),
    ((1_000_000, 3), {"ignored": 0.5}),
    ((1_000_000, 16), {}),
    ((300_000, 100), {"reduction": "none"}),
    ((70_000, 1000), {"target": "int32", "label_smoothing": 0.1}),
    ((4, 70_000), {"scale": 8, "shift": 1000, "label_smoothing": 0.1}),
    ((4, 70_001), {"masked": True, "shift": -200, "z_loss": 1e-4}),
    ((4, 256, 512, 19), {"layout": "images", "ignored": 0.1}),
    ((2, 128, 128, 150), {"layout": "images", "label_smoothing": 0.1, "z_loss": 1e-4}),
    ((3, 7, 7, 1000), {"layout": "images", "reduction": "none"}),
    ((2, 31, 33, 151), {"layout": "images", "reduction": "sum", "ignored": 0.5}),
    ((2, 40, 5000), {"layout": "images", "label_smoothing": 0.1}),
    ((1, 1000, 50257), {"layout": "images", "ignored": 0.1}),
)


DEFINITION = Operator(
    name="cross_entropy",
    summary="log(sum exp(logits)) - logits[target], with ignored rows, label smoothing and z-loss",
    make_inputs=make_inputs,
    reference=cross_entropy,
    cost=cost,
    public_arguments=public_arguments,
    differentiable=("input",),
    outputs=("loss",),
    workloads=grid(_EVERY_DTYPE, _ONCE),
    gpu_workloads=grid(_GPU),
    sweeps=sweeps,
    targets=(to_reach(Mode.FORWARD, 100, 100, 95), to_reach(Mode.FULL, 95, 95, 90)),
    ladder=ladder,
    workload_of=workload_of,
)
