"""The forward of the norms in CUDA C++: the forward_*.cu files beside this one, shared by the operators' cuda.py.

Each element is read once wherever a row fits in registers, in a cluster or on the chip. Mean and variance are taken in
that one read: every thread has the mean of what it holds first and the distances from it second, and these moments
combine in one meeting.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelyard.kernels.lines import Family, bits
from kernelyard.kernels.norms.shapes import lines, result_dtype, view
from kernelyard.kernels.plans import VECTOR, Limits, Stage
from kernelyard.kernels.prepared import Prepared, allocator
from kernelyard.kernels.support import TYPES

_CHIP = (256, 2)
"""Half as many threads have twice the registers each: 4 million fp32 weights take 124 of them."""
# Beside layer norm's weights, fp32 rows of 4 million leave registers for tiles of bias or of the row: 83 % with one of
# bias, 81 with two of the row. Without a bias two of the row would be 90 %.
# Small CTAs of four vectors a thread: with eight RMS norm loses 0.5 % (bf16, 65536), fused add 2 (bf16, 262144). Layer
# norm has w and b to wait for and holds more of a row to a CTA meanwhile: 98.5 % (bf16, 65536), with four vectors 95.
# Two lines of columns side by side leave its moments no registers: 87 % (bf16, 64 channels), one line 90.
_CENTRED = Limits(
    "forward", 1, (Stage(256, 32 << 10), Stage(512, 64 << 10)), line=128, unbounded=True, chip_full=(256, 0)
)
_PLAIN = Limits("forward", 1, (Stage(256, 16 << 10), Stage(512, 32 << 10), Stage(512, 64 << 10)), chip_full=_CHIP)
_TWO = Limits("forward", 2, tuple(replace(stage, one_in_registers=True) for stage in _PLAIN.stages), chip_full=_CHIP)
_MOMENTS = 16
"""Bytes of a CTA's part of a row."""

LAYER_NORM, RMS_NORM, ADD_RMS_NORM = (
    Family(f"{name}_cuda", Path(__file__).parent, limits, "forward_", _MOMENTS)
    for name, limits in (("layer_norm", _CENTRED), ("rms_norm", _PLAIN), ("fused_add_rms_norm", _TWO))
)
_prepared, _prepared_add = Prepared(), Prepared()


def normalise(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    eps: float,
    offset: float,
    casting: str,
    centred: bool,
    count: int,
    dim: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, mean, rstd) of x normalised over the `count` dims that end at `dim`: layer norm if `centred`, else RMS norm.

    weight and bias: of those dims' shape and of one dtype, or None. mean and rstd: float32, one for each row or column;
    mean has no elements unless `centred`. `casting`: where y is rounded, see `shapes.CASTINGS`.
    """
    weight, bias = _contiguous(weight), _contiguous(bias)
    key = (
        *(x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() % VECTOR),
        *(_lie(weight), _lie(bias), eps, offset, casting, centred, count, dim),
    )
    run = _prepared.get(key) or _prepared.keep(
        key, _prepare(x, weight, bias, eps, offset, casting, centred, count, dim)
    )
    return run(x, weight, bias)


def prepare_result(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    eps: float,
    offset: float,
    casting: str,
    centred: bool,
    count: int,
    dim: int,
) -> Callable[..., Tensor]:
    """What computes y alone, for tensors that lie as these do; weight and bias contiguous.

    Without the statistics two tensors need not be made: 2 us of 11 that a small call takes of the host.
    """
    return _prepare(x, weight, bias, eps, offset, casting, centred, count, dim, statistics=False)


def _prepare(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    offset: float,
    casting: str,
    centred: bool,
    count: int,
    dim: int,
    *,
    statistics: bool = True,
) -> Callable[..., Any]:
    """What takes x, weight and bias and returns y, mean and rstd, or without `statistics` y alone."""
    number = lines(x, count, dim)
    empty_y = allocator(x.shape, result_dtype(x, weight, casting), x.device)
    empty_mean, empty_rstd = (
        allocator(torch.Size((size,)), torch.float32, x.device) for size in (number if centred else 0, number)
    )
    if not x.numel():
        if not statistics:
            return lambda x, weight, bias: empty_y()
        return lambda x, weight, bias: (empty_y(), empty_mean().zero_(), empty_rstd().zero_())
    rows = view(x, count, dim)
    if rows.data.data_ptr() != x.data_ptr():
        options = (eps, offset, casting, centred, count, dim)
        copied = _prepare(x.contiguous(), weight, bias, *options, statistics=statistics)
        return lambda x, weight, bias: copied(x.contiguous(), weight, bias)
    y_step = rows.length * empty_y().element_size()
    launch = (LAYER_NORM if centred else RMS_NORM).prepare(
        rows,
        (x.data_ptr(), 0),
        (rows.pitch * x.element_size(), 0, 0, 0, y_step, 0, 4, 4),
        bits(eps),
        bits(offset),
        macros=_macros(x, weight, bias, casting, centred=centred, add=False),
    )

    def run(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        y, mean, rstd = empty_y(), empty_mean(), empty_rstd()
        at_weight = 0 if weight is None else weight.data_ptr()
        at_bias = 0 if bias is None else bias.data_ptr()
        launch(x.data_ptr(), 0, at_weight, at_bias, y.data_ptr(), 0, mean.data_ptr(), rstd.data_ptr())
        return y, mean, rstd

    def run_alone(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        y = empty_y()
        at_weight = 0 if weight is None else weight.data_ptr()
        at_bias = 0 if bias is None else bias.data_ptr()
        launch(x.data_ptr(), 0, at_weight, at_bias, y.data_ptr(), 0, 0, 0)
        return y

    return run if statistics else run_alone


def add_normalise(
    x: Tensor, residual: Tensor, weight: Tensor | None, *, eps: float, offset: float, casting: str
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, total, rstd): total = x + residual rounded to their dtype, and its RMS norm y over the last dim.

    rstd: float32, one for each row. The rest as in `normalise`.
    """
    weight = _contiguous(weight)
    if x.stride() != residual.stride():
        x, residual = x.contiguous(), residual.contiguous()
    key = (
        *(x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() % VECTOR, residual.data_ptr() % VECTOR),
        *(_lie(weight), eps, offset, casting),
    )
    run = _prepared_add.get(key) or _prepared_add.keep(key, _prepare_add(x, residual, weight, eps, offset, casting))
    return run(x, residual, weight)


def _prepare_add(
    x: Tensor, residual: Tensor, weight: Tensor | None, eps: float, offset: float, casting: str
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    empty_y = allocator(x.shape, result_dtype(x, weight, casting), x.device)
    empty_total = allocator(x.shape, x.dtype, x.device)
    empty_rstd = allocator(torch.Size((lines(x, 1, -1),)), torch.float32, x.device)
    if not x.numel():
        return lambda x, residual, weight: (empty_y(), empty_total(), empty_rstd().zero_())
    rows = view(x, 1, -1)
    if rows.data.data_ptr() != x.data_ptr():
        copied = _prepare_add(x.contiguous(), residual.contiguous(), weight, eps, offset, casting)
        return lambda x, residual, weight: copied(x.contiguous(), residual.contiguous(), weight)
    x_step, y_step, total_step = (
        elements * size
        for elements, size in (
            (rows.pitch, x.element_size()),
            (rows.length, empty_y().element_size()),
            (rows.length, x.element_size()),
        )
    )
    launch = ADD_RMS_NORM.prepare(
        rows,
        (x.data_ptr(), residual.data_ptr(), 0),
        (x_step, x_step, 0, 0, y_step, total_step, 0, 4),
        bits(eps),
        bits(offset),
        macros=_macros(x, weight, None, casting, centred=False, add=True),
    )

    def run(x: Tensor, residual: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        y, total, rstd = empty_y(), empty_total(), empty_rstd()
        at_weight = 0 if weight is None else weight.data_ptr()
        launch(x.data_ptr(), residual.data_ptr(), at_weight, 0, y.data_ptr(), total.data_ptr(), 0, rstd.data_ptr())
        return y, total, rstd

    return run


def _macros(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, casting: str, *, centred: bool, add: bool
) -> tuple[tuple[str, int | str], ...]:
    dtype = x.dtype if weight is None else weight.dtype
    rounded = {"gemma": torch.float32, "llama": x.dtype, "t5": dtype}[casting]
    return (
        ("WEIGHT", TYPES[dtype]),
        ("ROUNDED", TYPES[rounded] if weight is not None else "float"),
        ("OUT", TYPES[result_dtype(x, weight, casting)]),
        ("HAS_WEIGHT", int(weight is not None)),
        ("HAS_BIAS", int(bias is not None)),
        ("CENTRED", int(centred)),
        ("ADD", int(add)),
        ("VECTORS", int(all(p is None or p.data_ptr() % VECTOR == 0 for p in (weight, bias)))),
    )


def _contiguous(parameter: Tensor | None) -> Tensor | None:
    return parameter if parameter is None or parameter.is_contiguous() else parameter.contiguous()


def _lie(parameter: Tensor | None) -> tuple[torch.dtype, int] | None:
    return None if parameter is None else (parameter.dtype, parameter.data_ptr() % VECTOR)
