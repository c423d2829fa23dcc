"""The CUDA C++ rung: rows.cu, specialised for the rows at hand, launched on torch's stream."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from kernelyard.kernels import plans
from kernelyard.kernels.launch import Launcher
from kernelyard.kernels.layout import along
from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.plans import VECTOR, Limits
from kernelyard.kernels.prepared import LAYOUTS, allocator
from kernelyard.kernels.support import TYPES, cuda_refusal, dtype_refusal
from kernelyard.ops.diagonal_matmul import layout, prepared
from kernelyard.ops.diagonal_matmul.derivative import registered

_SOURCE = Path(__file__).with_name("rows.cu")
_LIMITS = {name: Limits(name, inputs, ()) for name, inputs in (("forward", 1), ("backward", 2))}
_SINGLES = 16
"""Elements of a thread where no vector fits, as `plans.rows` has them."""
_FINISH_THREADS = 128

Launch = Callable[..., None]


def _forward(a: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    key = layout(a, B)
    run = prepared.get(key) or prepared.keep(key, _prepare_forward(a, B))
    return run(a, B)


def _prepare_forward(a: torch.Tensor, B: torch.Tensor) -> Callable[..., torch.Tensor]:
    empty = allocator(B.shape, B.dtype, B.device)
    if not B.numel():
        return lambda a, B: empty()
    data, pitch = _rows(B)
    if data.data_ptr() != B.data_ptr() or not a.is_contiguous():
        copied = _prepare_forward(a.contiguous(), data)
        return lambda a, B: copied(a.contiguous(), _rows(B)[0])
    cut = _cut("forward", B.shape, pitch, B.dtype, B.device, (B.data_ptr() % VECTOR, 0))
    launch = _launcher("rows_forward", cut, B.dtype, a.dtype, B.device).bind(cut.grid, 3, *B.shape, pitch, cut.chunks)

    def run(a: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        y = empty()
        launch(a.data_ptr(), B.data_ptr(), y.data_ptr())
        return y

    return run


def _backward(
    dy: torch.Tensor, a: torch.Tensor, B: torch.Tensor | None, matrix: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    da = a.new_empty(a.shape if B is not None else 0)
    db = dy.new_empty(dy.shape if matrix else 0)
    if not dy.numel():
        return da.zero_(), db
    dy, a = dy.contiguous(), a.contiguous()
    rows, pitch = _rows(dy if B is None else B)
    at_dy, at_b = dy.data_ptr(), rows.data_ptr()
    starts = (at_dy % VECTOR, at_b % VECTOR, 0 if matrix else at_dy % VECTOR)
    main, finish, floats = _backward_launches(dy.shape, pitch, dy.dtype, a.dtype, dy.device, starts)
    parts = torch.empty(floats if B is not None else 0, dtype=torch.float32, device=dy.device)
    main(at_dy, a.data_ptr(), at_b, da.data_ptr(), db.data_ptr(), parts.data_ptr())
    if finish is not None and B is not None:
        finish(parts.data_ptr(), da.data_ptr())
    return da, db


@lru_cache(LAYOUTS)
def _backward_launches(
    shape: torch.Size,
    pitch: int,
    dtype: torch.dtype,
    factor: torch.dtype,
    device: torch.device,
    starts: tuple[int, ...],
) -> tuple[Launch, Launch | None, int]:
    """The kernel; where rows are cut, the one that adds up the parts of da; and how many floats those are."""
    cut = _cut("backward", shape, pitch, dtype, device, starts)
    launcher = _launcher("rows_backward", cut, dtype, factor, device)
    main = launcher.bind(cut.grid, 6, *shape, pitch, cut.chunks)
    if cut.chunks == 1:
        return main, None, 0
    finish = _launcher("rows_finish", cut, dtype, factor, device)
    return main, finish.bind(shape[0], 2, cut.chunks), cut.grid


def _rows(matrix: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The matrix with adjacent elements in its rows, copied where they are not, and the distance of its rows."""
    if matrix.is_contiguous():
        return matrix, matrix.shape[1]
    view = along(matrix, 1)
    return view.data, view.pitch


@dataclass(frozen=True)
class Cut:
    """Rows among CTAs: several to one, or `chunks` CTAs to a row."""

    plan: plans.RowPlan
    chunks: int
    grid: int
    long: bool
    """Whether a row has more elements than 32 bits count."""

    def macros(self, threads: int) -> Defines:
        own = {"OFFSET": "Index" if self.long else "int", "THREADS": threads}
        rows = tuple((name, own.get(name, value)) for name, value in self.plan.macros)
        return (*rows, ("CHUNKED", int(self.chunks > 1)))


def _cut(
    direction: str, shape: torch.Size, pitch: int, dtype: torch.dtype, device: torch.device, starts: tuple[int, ...]
) -> Cut:
    """For matrices that lie `starts` bytes from a vector's place, the one that is read with rows `pitch` apart."""
    (rows, length), size, limits = shape, dtype.itemsize, _LIMITS[direction]
    fit = plans.fit(size, length, pitch, starts)
    # A row that a CTA's registers do not hold is planned as what they do hold of it.
    held = limits.threads * (limits.registers // size if fit.vec > 1 else _SINGLES) - fit.vec + 1
    plan = plans.rows(limits, device, size, min(length, held), fit)
    assert isinstance(plan, plans.RowPlan)
    vectors = -(-(length + (fit.vec - 1 if fit.shifted else 0)) // fit.vec)
    chunks = -(-vectors // (plan.threads * plan.items))
    return Cut(plan, chunks, rows * chunks if chunks > 1 else plan.grid(rows), length >= 1 << 30)


def _launcher(kernel: str, cut: Cut, dtype: torch.dtype, factor: torch.dtype, device: torch.device) -> Launcher:
    finishing = kernel == "rows_finish"
    threads = _FINISH_THREADS if finishing else cut.plan.threads
    return Launcher(
        f"diagonal_matmul_cuda.{kernel}",
        _SOURCE,
        kernel,
        (("TYPE", TYPES[dtype]), ("FACTOR", TYPES[factor]), *cut.macros(threads)),
        device=device,
        threads=threads * cut.plan.rows,
        overlapping=finishing,
    )


def refusal(a: torch.Tensor, B: torch.Tensor) -> str | None:
    """Why this backend does not take the inputs, or None."""
    return cuda_refusal(B) or cuda_refusal(a) or dtype_refusal(a, B)


diagonal_matmul = registered("cuda", _forward, _backward)
