"""The CUDA C++ rung: rows.cu, specialised for the rows at hand, launched on torch's stream."""

from dataclasses import dataclass
from pathlib import Path

import torch

from kernelyard.kernels import plans
from kernelyard.kernels.launch import Bound, Launcher
from kernelyard.kernels.layout import along
from kernelyard.kernels.plans import Fit, Limits
from kernelyard.kernels.support import cuda_refusal, dtype_refusal
from kernelyard.ops.diagonal_matmul.derivative import registered

_SOURCE = Path(__file__).with_name("rows.cu")
_TYPES = {torch.float32: "float", torch.bfloat16: "Bfloat", torch.float16: "Half"}
_THREADS, _ITEM = 512, 64
_LIMITS = {
    name: Limits(name, inputs, (), registers=_ITEM, threads=_THREADS)
    for name, inputs in (("forward", 1), ("backward", 2))
}
_FINISH_THREADS = 128


@dataclass(frozen=True)
class Rows:
    """What a launch depends on besides the addresses."""

    direction: str
    factor: torch.dtype
    dtype: torch.dtype
    device: torch.device
    rows: int
    length: int
    pitch: int
    fit: Fit


@dataclass(frozen=True)
class Launches:
    """`parts` floats are left by `main` for `finish` to add up; none where a CTA has whole rows."""

    main: Bound
    parts: int = 0
    finish: Bound | None = None


_launches: dict[Rows, Launches] = {}


def _forward(a: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(B, memory_format=torch.contiguous_format)
    if y.numel():
        rows, pitch = _rows(B)
        addresses = (a.contiguous().data_ptr(), rows.data_ptr(), y.data_ptr())
        _find("forward", a, y, pitch, addresses[1:]).main(*addresses)
    return y


def _backward(
    dy: torch.Tensor,
    a: torch.Tensor,
    B: torch.Tensor | None,
    matrix: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    da = a.new_empty(a.shape if B is not None else 0)
    db = dy.new_empty(dy.shape if matrix else 0)
    if not dy.numel():
        return da.zero_(), db
    dy, a = dy.contiguous(), a.contiguous()
    rows, pitch = _rows(dy if B is None else B)
    streams = [dy, *([] if B is None else [rows]), *([db] if matrix else [])]
    found = _find("backward", a, dy, pitch, tuple([tensor.data_ptr() for tensor in streams]))
    parts = dy.new_empty(found.parts if B is not None else 0, dtype=torch.float32)
    found.main(dy.data_ptr(), a.data_ptr(), rows.data_ptr(), da.data_ptr(), db.data_ptr(), parts.data_ptr())
    if found.finish is not None and B is not None:
        found.finish(parts.data_ptr(), da.data_ptr())
    return da, db


def _rows(matrix: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The matrix with adjacent elements in its rows, copied where they are not, and the distance of its rows."""
    view = along(matrix, 1)
    return view.data, view.pitch


def _find(direction: str, a: torch.Tensor, like: torch.Tensor, pitch: int, streams: tuple[int, ...]) -> Launches:
    """The launches for matrices of `like`'s shape at the addresses `streams`, the read one `pitch` apart."""
    count, length = like.shape
    fit = plans.fit(like.element_size(), length, pitch, streams)
    rows = Rows(direction, a.dtype, like.dtype, like.device, count, length, pitch, fit)
    if rows not in _launches:
        _launches[rows] = _build(rows)
    return _launches[rows]


def _build(rows: Rows) -> Launches:
    fit, size = rows.fit, rows.dtype.itemsize
    # A row that 512 threads do not hold at once is planned as what they do hold of it.
    held = _THREADS * (_ITEM // size if fit.vec > 1 else _ITEM // 4) - fit.vec + 1
    plan = plans.rows(_LIMITS[rows.direction], rows.device, size, min(rows.length, held), fit)
    assert isinstance(plan, plans.RowPlan)
    vectors = -(-(rows.length + (fit.vec - 1 if fit.shifted else 0)) // fit.vec)
    chunks = -(-vectors // (plan.threads * plan.items))
    chunked = chunks > 1
    macros = (
        *((key, "Index" if key == "OFFSET" and rows.length >= 1 << 30 else value) for key, value in plan.macros),
        ("TYPE", _TYPES[rows.dtype]),
        ("FACTOR", _TYPES[rows.factor]),
        ("CHUNKED", int(chunked)),
    )
    grid = rows.rows * chunks if chunked else plan.grid(rows.rows)
    name = f"rows_{rows.direction}"
    main = Launcher(f"diagonal_matmul_cuda.{name}", _SOURCE, name, macros, device=rows.device, threads=plan.block)
    sizes = (rows.rows, rows.length, rows.pitch, chunks)
    if rows.direction == "forward":
        return Launches(main.bind(grid, 3, *sizes))
    bound = main.bind(grid, 6, *sizes)
    if not chunked:
        return Launches(bound)
    finish = Launcher(
        "diagonal_matmul_cuda.rows_finish",
        _SOURCE,
        "rows_finish",
        (*((key, value) for key, value in macros if key != "THREADS"), ("THREADS", _FINISH_THREADS)),
        device=rows.device,
        threads=_FINISH_THREADS,
        overlapping=True,
    )
    return Launches(bound, grid, finish.bind(rows.rows, 2, chunks))


def refusal(a: torch.Tensor, B: torch.Tensor) -> str | None:
    """Why this backend does not take the inputs, or None."""
    return cuda_refusal(B) or cuda_refusal(a) or dtype_refusal(a, B)


diagonal_matmul = registered("cuda", _forward, _backward)
