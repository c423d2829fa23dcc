"""The CUDA C++ rung: strips.cu, specialised for the widths and dtypes at hand, launched on torch's stream."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import torch

from kernelyard.kernels.launch import Launcher
from kernelyard.kernels.layout import along
from kernelyard.kernels.plans import VECTOR
from kernelyard.kernels.prepared import LAYOUTS
from kernelyard.kernels.support import TYPES, cuda_refusal, dtype_refusal
from kernelyard.ops.fused_linear_rowsum.derivative import empty_gradients, registered
from kernelyard.ops.fused_linear_rowsum.plan import BACKWARD, FINISHERS, FORWARD, Limits, Plan, plan, vector

_SOURCE = Path(__file__).with_name("strips.cu")
_WARP = 32

Launch = Callable[..., None]


def _forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.new_empty(x.shape[:-1])
    sums = x.new_empty(weight.shape[1], dtype=torch.float32)
    if not y.numel():
        return y, sums
    x, weight = _with_rows(x), _with_rows(weight)
    at_x, at_weight, at_bias = x.data_ptr(), weight.data_ptr(), 0
    if bias is not None:
        bias = bias.contiguous()
        at_bias = bias.data_ptr()
    main, finish, floats = _forward_launches(
        (x.shape, x.stride(), at_x % VECTOR),
        (weight.shape, weight.stride(), at_weight % VECTOR),
        (x.dtype, weight.dtype, x.dtype if bias is None else bias.dtype),
        x.device,
    )
    parts = sums.new_empty(floats)
    main(at_x, at_weight, at_bias, sums.data_ptr(), parts.data_ptr())
    finish(parts.data_ptr(), y.data_ptr())
    return y, sums


Layout = tuple[torch.Size, tuple[int, ...], int]
"""Shape, strides, and the address's distance from a vector's."""


@lru_cache(LAYOUTS)
def _forward_launches(
    x: Layout, weight: Layout, dtypes: tuple[torch.dtype, ...], device: torch.device
) -> tuple[Launch, Launch, int]:
    """The kernel, the one that adds up its parts, and how many floats those are."""
    (rows, x_pitch), (outputs, w_pitch), width = _rows(*x[:2]), _rows(*weight[:2]), weight[0][1]
    streams = ((x[2], dtypes[0].itemsize), (weight[2], dtypes[1].itemsize))
    chosen = _plan(FORWARD, device, width, vector(width, (x_pitch, w_pitch), streams))
    main = _launcher("strips_forward", device, dtypes, chosen)
    finish = _launcher("strips_finish", device, dtypes, chosen)
    return (
        main.bind(chosen.strips, 5, rows, outputs, width, x_pitch, w_pitch),
        finish.bind(-(-rows // _WARP), 2, chosen.strips, rows),
        chosen.strips * rows,
    )


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
    launch = _backward_launch(lies, width, dy.numel(), dy.stride(0), out_features, dtypes, dy.device)
    at_sums = 0 if sums is None else sums.data_ptr()
    launch(dy.data_ptr(), at_x, at_sums, dx.data_ptr(), dweight.data_ptr(), dbias.data_ptr())
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
    chosen = _plan(BACKWARD, device, width, vector(width, (x_pitch,), streams))
    launcher = _launcher("strips_backward", device, dtypes, chosen)
    return launcher.bind(chosen.strips, 6, rows, outputs, width, x_pitch, dy_pitch)


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


def _plan(limits: Limits, device: torch.device, width: int, vec: int) -> Plan:
    facts = torch.cuda.get_device_properties(device)
    return plan(limits, width, vec, facts.multi_processor_count, clusters=facts.major >= 9)


def _launcher(kernel: str, device: torch.device, dtypes: tuple[torch.dtype, ...], chosen: Plan) -> Launcher:
    """`dtypes` are those of x, weight and bias."""
    finishing = kernel == "strips_finish"
    types = tuple(zip(("TYPE", "WEIGHT", "BIAS"), (TYPES[dtype] for dtype in dtypes), strict=True))
    return Launcher(
        f"fused_linear_rowsum_cuda.{kernel}",
        _SOURCE,
        kernel,
        (*types, *chosen.macros),
        device=device,
        threads=FINISHERS * _WARP if finishing else chosen.limits.threads,
        cluster=1 if finishing else chosen.cluster,
        overlapping=finishing,
    )


def refusal(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> str | None:
    """Why this backend does not take the inputs, or None."""
    return cuda_refusal(x) or cuda_refusal(weight) or dtype_refusal(x, weight, bias)


fused_linear_rowsum = registered("cuda", _forward, _backward)
