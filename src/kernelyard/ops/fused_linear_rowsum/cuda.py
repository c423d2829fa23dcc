"""The CUDA C++ rung: kernels specialised for the widths and dtypes at hand, launched on torch's stream."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from kernelyard.kernels.launch import Launcher
from kernelyard.kernels.layout import along
from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.plans import VECTOR
from kernelyard.kernels.prepared import LAYOUTS, allocator
from kernelyard.kernels.support import TYPES, cuda_refusal, dtype_refusal
from kernelyard.ops.fused_linear_rowsum import layout, plan, prepared
from kernelyard.ops.fused_linear_rowsum.derivative import empty_gradients, registered
from kernelyard.ops.fused_linear_rowsum.plan import vector

_FOLDER = Path(__file__).parent

Launch = Callable[..., None]


def _forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    key = layout(x, weight, bias)
    run = prepared.get(key) or prepared.keep(key, _prepare_forward(x, weight, bias))
    y, sums = run(x, weight, bias)
    return y, sums[:-1]


def _prepare_forward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """What returns y and the sums over the weight's columns, of which the last is the sum of bias."""
    empty_y = allocator(x.shape[:-1], x.dtype, x.device)
    empty_sums = allocator(torch.Size((weight.shape[1] + 1,)), torch.float32, x.device)
    if not x.shape[:-1].numel():
        return lambda x, weight, bias: (empty_y(), empty_sums())
    given, laid_out = (x, weight, bias), _laid_out(x, weight, bias)
    if any(one is not other for one, other in zip(given, laid_out, strict=True)):
        copied = _prepare_forward(*laid_out)
        return lambda *given: copied(*_laid_out(*given))
    sum_columns, dot_rows = _forward_launches(
        (x.shape, x.stride(), x.data_ptr() % VECTOR),
        (weight.shape, weight.stride(), weight.data_ptr() % VECTOR),
        (x.dtype, weight.dtype, x.dtype if bias is None else bias.dtype),
        x.device,
    )

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        y, sums = empty_y(), empty_sums()
        at_sums = sums.data_ptr()
        sum_columns(weight.data_ptr(), 0 if bias is None else bias.data_ptr(), at_sums)
        dot_rows(x.data_ptr(), at_sums, y.data_ptr())
        return y, sums

    return run


def _laid_out(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The tensors as the kernels read them: themselves where those can."""
    return _with_rows(x), _with_rows(weight), None if bias is None else bias.contiguous()


Layout = tuple[torch.Size, tuple[int, ...], int]
"""Shape, strides, and the address's distance from a vector's."""


def _forward_launches(
    x: Layout, weight: Layout, dtypes: tuple[torch.dtype, ...], device: torch.device
) -> tuple[Launch, Launch]:
    (rows, pitch), (outputs, w_pitch), width = _rows(*x[:2]), _rows(*weight[:2]), weight[0][1]
    size, chip = dtypes[0].itemsize, _chip(device)
    chosen = plan.dots(rows, width, vector(width, (pitch,), ((x[2], size),)), size, chip)
    dot_rows = _launcher(
        "dots",
        "row_dots",
        (("TYPE", TYPES[dtypes[0]]), *chosen.macros),
        device,
        threads=plan.DOT_THREADS,
        shared_bytes=chosen.shared_bytes,
        overlapping=True,
    )
    return (
        _sum_columns((outputs, width, w_pitch, 1), weight[2], dtypes[1:], device, weighted=False),
        dot_rows.bind(chosen.grid(rows, chip.processors), 3, rows, width, pitch),
    )


def _sum_columns(
    sizes: tuple[int, int, int, int], start: int, dtypes: tuple[torch.dtype, ...], device: torch.device, weighted: bool
) -> Launch:
    """Sizes are rows, columns, the rows' distance and that of the numbers that belong to them; dtypes of both."""
    _, width, pitch, _ = sizes
    size, chip = dtypes[0].itemsize, _chip(device)
    vec = vector(width, (pitch,), ((start, size),))
    stages = plan.stages(vec, size, chip, plan.COLUMN_STAGES)
    chosen = plan.cut(plan.column_limits(width * size, vec * size == VECTOR), width, vec, chip)
    macros = (
        *zip(("TYPE", "EXTRA"), (TYPES[dtype] for dtype in dtypes), strict=True),
        *chosen.macros,
        ("STAGES", stages),
        ("AHEAD", plan.AHEAD),
        ("WEIGHTED", int(weighted)),
    )
    launcher = _launcher(
        "columns",
        "column_sums",
        macros,
        device,
        threads=chosen.limits.threads,
        cluster=chosen.cluster,
        shared_bytes=stages * chosen.limits.threads * VECTOR,
    )
    return launcher.bind(chosen.strips, 3, *sizes)


def _backward(
    dy: torch.Tensor,
    x: torch.Tensor | None,
    sums: torch.Tensor | None,
    out_features: int,
    weight_dtype: torch.dtype,
    bias_dtype: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dx, dweight, dbias = gradients = empty_gradients(dy, x, sums, out_features, weight_dtype, bias_dtype)
    dy, width, at_x, lies = dy.reshape(-1), 0, 0, None
    if x is not None:
        x = _with_rows(x)
        width, at_x = x.shape[-1], x.data_ptr()
        lies = (x.shape, x.stride(), at_x % VECTOR)
    elif sums is not None:
        width = sums.shape[0]
    dtypes = (dy.dtype, weight_dtype, bias_dtype or dy.dtype)
    layouts = (lies, width, dy.numel(), dy.stride(0), out_features, dtypes, dy.device)
    at_sums, at_dbias = 0 if sums is None else sums.data_ptr(), dbias.data_ptr()
    if x is not None and sums is not None and 2 * dx.nbytes + dweight.nbytes > plan.PAIR_BYTES:
        read, write = _backward_pair(*layouts)
        v = sums.new_empty(width + 1)
        read(at_x, dy.data_ptr(), v.data_ptr())
        write(dy.data_ptr(), at_sums, v.data_ptr(), dx.data_ptr(), dweight.data_ptr(), at_dbias)
    else:
        launch = _backward_launch(*layouts)
        launch(dy.data_ptr(), at_x, at_sums, dx.data_ptr(), dweight.data_ptr(), at_dbias)
    return gradients


@lru_cache(LAYOUTS)
def _backward_launch(
    x: Layout | None,
    width: int,
    rows: int,
    dy_pitch: int,
    outputs: int,
    dtypes: tuple[torch.dtype, ...],
    device: torch.device,
) -> Launch:
    # What is written starts where a vector may.
    x_pitch, start = (0, 0) if x is None else (_rows(*x[:2])[1], x[2])
    streams = ((start, dtypes[0].itemsize), (0, dtypes[1].itemsize))
    limits = plan.strip_limits(width * dtypes[0].itemsize)
    chosen = plan.cut(limits, width, vector(width, (x_pitch,), streams), _chip(device))
    macros = (*_types(dtypes), *chosen.macros, ("RESIDENT", limits.resident), ("ITEMS", plan.STRIP_ITEMS))
    launcher = _launcher("strips", "strips_backward", macros, device, threads=limits.threads, cluster=chosen.cluster)
    return launcher.bind(chosen.strips, 6, rows, outputs, width, x_pitch, dy_pitch)


@lru_cache(LAYOUTS)
def _backward_pair(
    x: Layout,
    width: int,
    rows: int,
    dy_pitch: int,
    outputs: int,
    dtypes: tuple[torch.dtype, ...],
    device: torch.device,
) -> tuple[Launch, Launch]:
    """The kernel that reads x, and the one that writes."""
    vec = vector(width, (), tuple((0, dtype.itemsize) for dtype in dtypes[:2]))
    chosen = plan.panels(width, vec, _chip(device))
    macros = (*_types(dtypes), *chosen.macros)
    write = _launcher("gradients", "write_gradients", macros, device, threads=plan.WRITERS.threads, overlapping=True)
    return (
        _sum_columns((rows, width, _rows(*x[:2])[1], dy_pitch), x[2], (dtypes[0],) * 2, device, weighted=True),
        write.bind(chosen.ctas, 6, rows, outputs, width, dy_pitch, chosen.panels),
    )


def _with_rows(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix, copied where the elements of its rows are not adjacent or the rows not at one distance."""
    return matrix if matrix.is_contiguous() or _adjacent(matrix.shape, matrix.stride()) else matrix.contiguous()


@lru_cache(LAYOUTS)
def _adjacent(shape: torch.Size, stride: tuple[int, ...]) -> bool:
    matrix = torch.empty_strided(shape, stride, device="meta")
    return not matrix.numel() or along(matrix, -1).data is matrix


def _rows(shape: torch.Size, stride: tuple[int, ...]) -> tuple[int, int]:
    """How many rows, and their distance."""
    matrix = torch.empty_strided(shape, stride, device="meta")
    if not matrix.numel():
        return shape[:-1].numel(), 0
    view = along(matrix, -1)
    return view.outer, view.pitch


@lru_cache
def _chip(device: torch.device) -> plan.Chip:
    facts = torch.cuda.get_device_properties(device)
    return plan.Chip(
        facts.multi_processor_count,
        facts.shared_memory_per_block_optin,  # type: ignore[attr-defined]
        clusters=facts.major >= 9,
        copies=facts.major >= 8,
    )


def _types(dtypes: tuple[torch.dtype, ...]) -> Defines:
    return tuple(zip(("TYPE", "WEIGHT", "BIAS"), (TYPES[dtype] for dtype in dtypes), strict=True))


def _launcher(source: str, kernel: str, macros: Defines, device: torch.device, **shape: Any) -> Launcher:
    label = f"fused_linear_rowsum_cuda.{kernel}"
    return Launcher(label, _FOLDER / f"{source}.cu", kernel, macros, device=device, **shape)


def refusal(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> str | None:
    """Why this backend does not take the inputs, or None."""
    return cuda_refusal(x) or cuda_refusal(weight) or dtype_refusal(x, weight, bias)


fused_linear_rowsum = registered("cuda", _forward, _backward)
