"""The CUDA backward of layer_norm, rms_norm and fused_add_rms_norm: dx, dweight and dbias of a normalisation.

Deterministic: sums are taken in an order that depends on shapes, dtypes and the device alone.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from cuda.bindings import driver

from kernelyard.kernels import plans as column_plans
from kernelyard.kernels.launch import Bound, Launcher
from kernelyard.kernels.lines import bits
from kernelyard.kernels.norms import backward_plans as plans
from kernelyard.kernels.norms.shapes import view
from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.plans import VECTOR
from kernelyard.kernels.prepared import LAYOUTS
from kernelyard.kernels.support import TYPES

_FOLDER = Path(__file__).parent

_COLUMNS = column_plans.Limits("backward", 2, ())

Run = Callable[..., None]


class _Case(NamedTuple):
    """What tells calls apart that need different launches."""

    x: torch.dtype
    dy: torch.dtype
    weight: torch.dtype | None
    bias: bool
    total: bool
    centred: bool
    casting: str
    offset: float
    outer: int
    length: int
    inner: int
    x_pitch: int
    dy_pitch: int
    total_pitch: int
    alignment: int
    """The largest power of two, 16 at most, that divides all addresses; the wider element's size at least, since one
    element is aligned to itself whatever a wider neighbour would need."""
    device: torch.device

    @property
    def parameter(self) -> torch.dtype:
        """Of dweight and dbias."""
        return self.weight or self.x

    @property
    def planes(self) -> int:
        return (self.weight is not None) + self.bias

    @property
    def macros(self) -> Defines:
        rounded = torch.float32
        if self.casting == "llama":
            rounded = self.x
        elif self.casting == "t5" and self.weight is not None:
            rounded = self.weight
        return (
            ("TYPE", TYPES[self.x]),
            ("DY", TYPES[self.dy]),
            ("WEIGHT", TYPES[self.parameter]),
            ("ROUNDED", TYPES[rounded]),
            ("CENTRED", int(self.centred)),
            ("HAS_WEIGHT", int(self.weight is not None)),
            ("HAS_BIAS", int(self.bias)),
            ("HAS_TOTAL", int(self.total)),
        )

    @property
    def vec(self) -> int:
        """Elements to a vector, such that every vector of every tensor is aligned."""
        vec = VECTOR // max(self.x.itemsize, self.dy.itemsize)
        sizes = [self.length, self.x_pitch, self.dy_pitch, self.total_pitch] if self.inner == 1 else [self.inner]
        while any(size % vec for size in sizes) or self.alignment % min(VECTOR, vec * self.widest):
            vec //= 2
        return vec

    @property
    def streams(self) -> plans.Streams:
        size = self.x.itemsize
        return plans.Streams(self.dy.itemsize, size, size * self.total, self.weight.itemsize if self.weight else 0)

    @property
    def packed(self) -> bool:
        """Whether several rows are one piece of memory."""
        return self.x_pitch == self.dy_pitch == self.total_pitch == self.length

    @property
    def widest(self) -> int:
        return max(self.x.itemsize, self.dy.itemsize)


def normalise_backward(
    dy: torch.Tensor | None,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    dtotal: torch.Tensor | None = None,
    offset: float,
    casting: str,
    centred: bool,
    bias: bool,
    count: int,
    dim: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`(dx, dweight, dbias)` of x normalised over the `count` dims that end at `dim`: fresh, contiguous tensors.

    `mean` (read where `centred`) and `rstd` are fp32, one for each row or column. `dtotal`, of x's shape and dtype, is
    added to dx; without `dy` dx is dtotal. dweight and dbias have the weight's dtype (without a weight: x's) and the
    shape of the normalised dims; they are empty where there is no weight, or no `bias`.
    """
    shape, outer, length, inner = _form(x.shape, count, dim)
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    like = x if weight is None else weight
    dweight = like.new_empty(shape if weight is not None else 0)
    dbias = like.new_empty(shape if bias else 0)
    if dy is None or not x.numel():
        if dy is None and dtotal is not None:
            dx.copy_(dtotal)
        return dx, dweight.zero_(), dbias.zero_()
    x, x_pitch = _laid_out(x, count, dim, length)
    dy, dy_pitch = _laid_out(dy, count, dim, length)
    total_pitch = length
    if dtotal is not None:
        dtotal, total_pitch = _laid_out(dtotal, count, dim, length)
    at_x, at_dy, at_total = x.data_ptr(), dy.data_ptr(), dtotal.data_ptr() if dtotal is not None else 0
    at_weight = 0
    if weight is not None:
        if not weight.is_contiguous() or weight.data_ptr() % VECTOR:
            weight = weight.clone(memory_format=torch.contiguous_format)
        at_weight = weight.data_ptr()
    joint = (at_x | at_dy | at_total) % VECTOR
    case = _Case(
        x.dtype,
        dy.dtype,
        None if weight is None else weight.dtype,
        bias,
        dtotal is not None,
        centred,
        casting,
        offset,
        outer,
        length,
        inner,
        x_pitch,
        dy_pitch,
        total_pitch,
        max(joint & -joint or VECTOR, x.itemsize, dy.itemsize),
        x.device,
    )
    gradients = [gradient.data_ptr() for gradient in (dweight, dbias) if gradient.numel()]
    _runner(case)(at_dy, at_x, at_total, at_weight, mean.data_ptr(), rstd.data_ptr(), dx.data_ptr(), gradients)
    return dx, dweight, dbias


@lru_cache(LAYOUTS)
def _form(shape: torch.Size, count: int, dim: int) -> tuple[torch.Size, int, int, int]:
    """The shape of the normalised dims, and the tensor as outer x length x inner elements."""
    last = dim % len(shape) + 1
    normalised = shape[last - count : last]
    return normalised, prod(shape[: last - count]), prod(normalised), prod(shape[last:])


def _laid_out(tensor: torch.Tensor, count: int, dim: int, length: int) -> tuple[torch.Tensor, int]:
    """The tensor as the kernels read it, copied where they cannot, and the elements from one row to the next."""
    if tensor.is_contiguous():
        return tensor, length
    rows = view(tensor, count, dim)
    return rows.data, rows.pitch


@lru_cache(LAYOUTS)
def _runner(case: _Case) -> Run:
    if case.inner == 1 and torch.cuda.get_device_capability(case.device)[0] in (9, 10):
        plan = plans.pipeline(case.length, case.vec, case.streams, case.packed)
        run = _pipeline(case, plan) if plan else None
        if run:
            return run
    if case.inner > 1:
        columns = column_plans.columns(_COLUMNS, case.outer, case.length, case.inner, case.widest, case.alignment)
        if columns.chunks == 1:
            return _columns(case, columns)
    return _split(case)


def _pipeline(case: _Case, plan: plans.RowsPlan) -> Run | None:
    """Rows in one read, or None where the device holds no CTA of the plan."""
    launcher, capacity = _rows_launcher(case._replace(outer=0), plan)
    if not capacity:
        return None
    units = -(-case.outer // plan.rows)
    # As few CTAs as take no longer: with fewer parts, less is left to add up.
    steps = -(-units // (capacity * plan.teams))
    parts = -(-units // (steps * plan.teams))
    sizes = (case.outer, case.length, plan.share, case.dy_pitch, case.x_pitch, case.total_pitch)
    rooms = (plan.room(case.streams.dy), plan.room(case.streams.x))
    rows = launcher.bind(parts, 8, *sizes, *rooms, bits(case.offset))
    return _finished(case, rows, parts)


@cache
def _rows_launcher(case: _Case, plan: plans.RowsPlan) -> tuple[Launcher, int]:
    """The kernel for any number of rows, and how many clusters of its CTAs the device holds."""
    launcher = Launcher(
        "norms_cuda.rows_backward",
        _FOLDER / "backward_rows.cu",
        "rows_pipelined",
        (*case.macros, *plan.macros),
        device=case.device,
        threads=plan.block,
        cluster=plan.cluster,
        shared_bytes=plan.shared_bytes(case.streams),
    )
    return launcher, _capacity(launcher)


def _columns(case: _Case, plan: column_plans.ColumnPlan) -> Run:
    """Columns that fit a CTA's registers, in one read."""
    launcher = _launcher("columns", "columns_held", case, plan.macros, plan.block)
    tiles = case.outer * -(-case.inner // (plan.across * plan.vec))
    steps = -(-tiles // (launcher.occupancy() * column_plans.processors(case.device)))
    parts = -(-tiles // steps)
    columns = launcher.bind(parts, 8, case.outer, case.length, case.inner, bits(case.offset))
    return _finished(case, columns, parts)


def _finished(case: _Case, kernel: Bound, parts: int) -> Run:
    """A kernel that leaves `parts` parts of dweight and dbias, and what adds them up."""
    finish = _finish(case, parts)
    floats = parts * case.planes * case.length

    def run(dy: int, x: int, total: int, weight: int, mean: int, rstd: int, dx: int, gradients: list[int]) -> None:
        parts = torch.empty(floats, dtype=torch.float32, device=case.device)
        kernel(dy, x, total, weight, mean, rstd, dx, parts.data_ptr())
        finish(parts.data_ptr(), gradients)

    return run


def _capacity(launcher: Launcher) -> int:
    """Clusters of a kernel's CTAs that the device holds at a time."""
    if launcher.cluster == 1:
        return launcher.occupancy() * column_plans.processors(launcher.device)
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x = launcher.cluster
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launcher.cluster, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = launcher.threads, 1, 1
    config.sharedMemBytes = launcher.shared_bytes
    config.attrs, config.numAttrs = [attribute], 1
    with torch.cuda.device(launcher.device):
        status, count = driver.cuOccupancyMaxActiveClusters(driver.CUfunction(launcher._as_function()), config)
    return count if status == driver.CUresult.CUDA_SUCCESS else 0


def _launcher(source: str, kernel: str, case: _Case, macros: Defines, threads: int) -> Launcher:
    return Launcher(
        f"norms_cuda.{kernel}_backward",
        _FOLDER / f"backward_{source}.cu",
        kernel,
        (*case.macros, *macros),
        device=case.device,
        threads=threads,
    )


def _finish(case: _Case, parts: int) -> Callable[[int, list[int]], None]:
    """What adds up `parts` rows of parts, given their address and those of dweight and dbias."""
    if not case.planes:
        return lambda parts, gradients: None
    plan = plans.finish(parts, case.length)
    launcher = Launcher(
        "norms_cuda.finish_backward",
        _FOLDER / "backward_finish.cu",
        "backward_finish",
        (("TYPE", TYPES[case.parameter]), *plan.macros),
        device=case.device,
        threads=plan.across * plan.along,
        overlapping=True,
    )
    bound = launcher.bind((-(-case.length // plan.columns), case.planes), 3, parts, case.length)
    return lambda parts, gradients: bound(parts, gradients[0], gradients[-1])


def _split(case: _Case) -> Run:
    processors = column_plans.processors(case.device)
    outer, length, inner = case.outer, case.length, case.inner
    columns = outer * inner
    if inner == 1:
        plan = plans.split_rows(outer, length, case.vec, processors)
        kernels, tiles = ("split_rows_sums", "split_rows_apply"), -(-length // (plan.threads * plan.vec))
        grid = (outer, plan.chunks)
        sizes: tuple[int, ...] = (length, case.dy_pitch, case.x_pitch)
        apply_sizes: tuple[int, ...] = (outer, length, case.dy_pitch, case.x_pitch, case.total_pitch)
    else:
        plan = plans.split_columns(outer, length, inner, case.vec, processors)
        kernels, tiles = ("split_columns_sums", "split_columns_apply"), -(-length // 32)
        steps = -(-inner // (32 * plan.vec))
        grid = (outer * steps, plan.chunks)
        sizes = (length, inner, steps)
        apply_sizes = (outer, length, inner, steps)
    built = [_launcher("split", name, case, plan.macros, plan.threads) for name in (*kernels, "split_means")]
    sums = built[0].bind(grid, 6, *sizes, bits(case.offset))
    apply = built[1].bind((tiles, plan.parts), 7, *apply_sizes, bits(case.offset))
    means = built[2].bind(-(-columns // plan.threads), 4, columns, plan.chunks, length)
    finish = _finish(case, plan.parts)

    def run(dy: int, x: int, total: int, weight: int, mean: int, rstd: int, dx: int, gradients: list[int]) -> None:
        scratch = torch.empty(columns * (plan.chunks * 2 + 4), dtype=torch.float32, device=case.device)
        parts = torch.empty(plan.parts * case.planes * length, dtype=torch.float32, device=case.device)
        found = scratch.data_ptr()
        parted = found + 16 * columns
        sums(dy, x, weight, mean, rstd, parted)
        means(parted, mean, rstd, found)
        apply(dy, x, total, weight, found, dx, parts.data_ptr())
        finish(parts.data_ptr(), gradients)

    return run
