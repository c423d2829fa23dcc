"""Rotary position embedding: what it takes, what it costs, and the cases it is proved and timed on."""

from typing import Any

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Cost, Operator, Sweep, Target
from kernelyard.core.workload import Mode, Workload
from kernelyard.ops.cases import Cases, grid, of_mode
from kernelyard.ops.inputs import generator_of, laid_out
from kernelyard.ops.rope.reference import rope

BASE = 10000.0


def make_inputs(workload: Workload, device: torch.device) -> dict[str, Any]:
    """q of the workload's shape (B, H, T, D) and k like it, normally distributed; cos and sin of Llama's angles.

    Options: `kv_heads` of k, else as many as q has; `layout`: as `laid_out` has them, or `by_token` for views of
    (B, T, H, D), or `fused` for views of q, k and v in one (B, T, H + 2 Hk, D); `interleaved`; `rotated`, the R of
    cos and sin, else D; `table`: `shared` (T, R) or `batched` (B, T, R); `precise=True` for tables in float32.
    """
    batch, heads, tokens, width = workload.shape
    layout, interleaved = workload.option("layout", "contiguous"), workload.option("interleaved", False)
    kv_heads = workload.option("kv_heads", heads)
    generator = generator_of(workload, device)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(size, dtype=workload.torch_dtype, device=device, generator=generator)

    if layout == "fused":
        fused = draw(batch, tokens, heads + 2 * kv_heads, width).transpose(1, 2)
        q, k = fused[:, :heads], fused[:, heads : heads + kv_heads]
    elif layout == "by_token":
        q, k = draw(batch, tokens, heads, width).transpose(1, 2), draw(batch, tokens, kv_heads, width).transpose(1, 2)
    else:
        repeated = 1 if layout == "expanded" else batch
        q = laid_out(draw(repeated, heads, tokens, width), layout, workload.shape)
        k = laid_out(draw(repeated, kv_heads, tokens, width), layout, (batch, kv_heads, tokens, width))
    rotated = workload.option("rotated", width)
    frequencies = BASE ** (-torch.arange(0, rotated, 2, dtype=torch.float64, device=device) / max(rotated, 1))
    positions = torch.arange(tokens, dtype=torch.float64, device=device)
    if workload.option("table", "shared") == "batched":
        positions = positions + 7 * torch.arange(batch, device=device)[:, None]
    angles = positions[..., None] * frequencies
    angles = angles.repeat_interleave(2, -1) if interleaved else torch.cat((angles, angles), -1)
    dtype = torch.float32 if workload.option("precise", False) else workload.torch_dtype
    return {"q": q, "k": k, "cos": angles.cos().to(dtype), "sin": angles.sin().to(dtype), "interleaved": interleaved}


def public_arguments(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of `kernelyard.ops.rope`, for a backend's."""
    return (q, k, cos, sin), {"interleaved": interleaved}


def cost(workload: Workload, mode: Mode) -> Cost:
    """Forward and backward both read and write q and k (or their gradients) and read cos and sin.

    Three operations an element: two products and a sum.
    """
    batch, heads, tokens, width = workload.shape
    elements = batch * (heads + workload.option("kv_heads", heads)) * tokens * width
    whole = elements * workload.torch_dtype.itemsize
    repeated = max(batch, 1) if workload.option("layout", None) == "expanded" else 1
    table = tokens * workload.option("rotated", width) * (batch if workload.option("table", None) == "batched" else 1)
    tables = 2 * table * (4 if workload.option("precise", False) else workload.torch_dtype.itemsize)
    forward = Cost(whole // repeated + tables, whole, 3 * elements)
    backward = Cost(whole + tables, whole, 3 * elements)
    return of_mode(forward, backward, mode)


def workload_of(shape: tuple[int, ...], dtype: str) -> Workload:
    """q and k of one shape (B, H, T, D) with an even D; raises UsageError for any other."""
    if len(shape) != 4 or shape[-1] % 2 or any(size < 0 for size in shape):
        raise UsageError(f"rope takes a shape (B, H, T, D) with an even D, not {'x'.join(map(str, shape))}")
    return Workload.of(*shape, dtype=dtype)


def sweeps(dtype: str, device_type: str) -> tuple[Sweep, ...]:
    """Tokens of a sequence at a constant number of them: 32 heads of q and 8 of k, 128 wide.

    On a GPU 2^16 tokens: 1.3 GB in 16 bits, 2.7 in 32. First as a model has them, views of (B, T, H, D) in memory;
    then (B, H, T, D) in memory, and interleaved. Last few tokens, of a batch of one.
    """
    lengths: tuple[int, ...] = (1024, 4096, 16384, 65536)
    total, heads = 2**16, {"kv_heads": 8}
    if device_type == "cpu":
        lengths, total = (16, 64), 64

    def points(**options: Any) -> tuple[tuple[int, Workload], ...]:
        return tuple((t, Workload.of(total // t, 32, t, 128, dtype=dtype, **heads, **options)) for t in lengths)

    label = "tokens of a sequence"
    few = tuple((m, Workload.of(1, 32, m, 128, dtype=dtype, layout="by_token", **heads)) for m in (1, 8, 64, 512))
    return (
        Sweep(x_name="T", x_label=label, points=points(layout="by_token")),
        Sweep(x_name="T", x_label=label, points=points()),
        Sweep(x_name="T", x_label=label, points=points(layout="by_token", interleaved=True)),
        Sweep(x_name="M", x_label="tokens, one sequence", points=few, host=True),
    )


def ladder(device_type: str) -> Workload:
    """80 MiB of q and k in bf16 on a GPU; small enough for Triton's interpreter on a CPU."""
    if device_type == "cpu":
        return Workload.of(2, 8, 16, 64)
    return Workload.of(2, 32, 4096, 128, dtype="bfloat16", kv_heads=8, layout="by_token")


_EVERY_DTYPE: Cases = (
    ((2, 4, 5, 16), {}),
    ((2, 6, 7, 64), {"kv_heads": 2, "layout": "by_token"}),
    ((1, 3, 9, 20), {"interleaved": True, "precise": True}),
    ((2, 2, 3, 24), {"interleaved": True, "layout": "by_token", "rotated": 10}),
    ((2, 3, 6, 80), {"kv_heads": 1, "rotated": 32, "table": "batched", "precise": True, "layout": "fused"}),
)
_ONCE: Cases = (
    ((1, 1, 1, 2), {}),
    ((1, 2, 1, 2), {"interleaved": True}),
    ((1, 3, 11, 18), {}),
    ((3, 5, 1, 32), {"layout": "by_token", "table": "batched"}),
    ((2, 3, 4, 6), {"rotated": 0}),
    ((0, 2, 3, 8), {}),
    ((2, 2, 0, 8), {}),
    ((2, 2, 3, 8), {"kv_heads": 0}),
    ((2, 2, 5, 16), {"layout": "misaligned"}),
    ((2, 2, 5, 16), {"layout": "misaligned", "interleaved": True}),
    ((2, 2, 5, 16), {"layout": "sliced"}),
    ((2, 2, 5, 16), {"layout": "transposed"}),
    ((3, 2, 5, 16), {"layout": "expanded", "table": "batched"}),
)
_GPU: Cases = (
    ((2, 32, 300, 128), {"kv_heads": 8, "layout": "by_token"}),
    ((2, 32, 300, 128), {"kv_heads": 8, "layout": "by_token", "interleaved": True, "precise": True}),
    ((2, 32, 300, 128), {"kv_heads": 8}),
    ((3, 7, 129, 64), {"layout": "fused", "table": "batched"}),
    ((1, 72, 65, 256), {"kv_heads": 3, "rotated": 64, "precise": True}),
    ((1, 128, 33, 96), {"kv_heads": 1, "layout": "by_token"}),
    ((2, 5, 77, 1026), {"kv_heads": 1, "interleaved": True}),
    ((65, 3, 1, 128), {"layout": "by_token"}),
    ((1, 4, 70_000, 64), {"kv_heads": 2, "precise": True}),
    ((2, 9, 201, 128), {"layout": "misaligned"}),
    ((2, 9, 201, 128), {"layout": "sliced", "interleaved": True}),
)


DEFINITION = Operator(
    name="rope",
    summary="q and k rotated by position, half-split or interleaved, any number of heads each",
    make_inputs=make_inputs,
    reference=rope,
    cost=cost,
    public_arguments=public_arguments,
    differentiable=("q", "k"),
    workloads=grid(_EVERY_DTYPE, _ONCE),
    gpu_workloads=grid(_GPU),
    sweeps=sweeps,
    targets=tuple(Target("T", mode, ((65536, 95),)) for mode in (Mode.FORWARD, Mode.BACKWARD)),
    ladder=ladder,
    workload_of=workload_of,
    outputs=("q", "k"),
)
