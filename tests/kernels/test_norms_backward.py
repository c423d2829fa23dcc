"""The CUDA backward of the norms, by itself: against float64, over every kernel it chooses between."""

from itertools import product
from math import prod

import pytest
import torch

from kernelyard import ops
from kernelyard.kernels import nvrtc, plans
from kernelyard.kernels.norms import backward, backward_plans

TYPES = {"float": torch.float32, "Bfloat": torch.bfloat16, "Half": torch.float16}
FLAGS = {"CENTRED": 1, "HAS_WEIGHT": 1, "HAS_BIAS": 1, "HAS_TOTAL": 0}
HALVES = (torch.bfloat16, torch.float16)


def _macros(dtype: str, **changed: int | str) -> nvrtc.Defines:
    named: dict[str, int | str] = {"TYPE": dtype, "DY": dtype, "WEIGHT": dtype, "ROUNDED": "float", **FLAGS}
    return tuple((named | changed).items())


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_the_kernels_of_any_chip_compile(arch: str) -> None:
    folder = backward._FOLDER
    plan = backward_plans.SplitPlan(4, 128, True, 1, 1)
    for macros in (_macros("float"), _macros("Bfloat", WEIGHT="float", ROUNDED="Bfloat", HAS_BIAS=0, HAS_TOTAL=1)):
        code = nvrtc._compile(folder / "backward_split.cu", (*macros, *plan.macros), arch)
        for kernel in ("rows_sums", "columns_sums", "means", "rows_apply", "columns_apply"):
            assert f"split_{kernel}".encode() in code
        columns = (*macros, *plans.ColumnPlan(4, 8, 16, 4).macros)
        assert b"columns_held" in nvrtc._compile(folder / "backward_columns.cu", columns, arch)
    finish = (("TYPE", "Half"), *backward_plans.finish(500, 8192).macros)
    assert b"backward_finish" in nvrtc._compile(folder / "backward_finish.cu", finish, arch)


@pytest.mark.parametrize(
    ("length", "vec", "dtype", "flags"),
    [
        (64, 4, "float", {"HAS_WEIGHT": 0, "HAS_BIAS": 0, "CENTRED": 0}),
        (1001, 1, "Half", {"WEIGHT": "float", "ROUNDED": "Half"}),
        (4096, 8, "Bfloat", {"HAS_BIAS": 0, "CENTRED": 0, "HAS_TOTAL": 1}),
        (65536, 4, "Bfloat", {"DY": "float"}),
        (262144, 4, "float", {"HAS_BIAS": 0, "CENTRED": 0, "HAS_TOTAL": 1}),
    ],
)
def test_the_pipeline_compiles(length: int, vec: int, dtype: str, flags: dict[str, int | str]) -> None:
    macros = _macros(dtype, **flags)
    sizes = [TYPES[str(dict(macros)[name])].itemsize for name in ("DY", "TYPE", "WEIGHT")]
    streams = backward_plans.Streams(sizes[0], sizes[1], sizes[1] * bool(flags.get("HAS_TOTAL")), sizes[2])
    for packed in (True, False) if length == 64 else (True,):
        plan = backward_plans.pipeline(length, vec, streams, packed)
        assert plan is not None and plan.fits(streams)
        code = nvrtc._compile(backward._FOLDER / "backward_rows.cu", (*macros, *plan.macros), "sm_90a")
        assert b"rows_pipelined" in code


LAID_OUT = [
    (torch.arange(24.0).view(2, 3, 4)[:, :, :1], 1, 1),
    (torch.arange(12.0).view(4, 3)[:, :1], 1, 0),
    (torch.ones(1).expand(2, 3, 1), 1, 1),
    (torch.arange(30.0).view(2, 3, 5)[:, :, 2:3], 1, -2),
    (torch.arange(60.0).view(2, 3, 5, 2)[..., :1, :1], 2, 2),
    (torch.arange(48.0).view(2, 3, 4, 2)[..., :1], 2, -2),
    (torch.arange(24.0).view(4, 6)[:, :5], 1, -1),
    (torch.arange(24.0).view(4, 6).t(), 1, -1),
    (torch.arange(24.0).view(4, 6)[:, ::2], 1, 1),
    (torch.ones(4, 1).expand(4, 6), 1, 1),
    (torch.arange(120.0).view(2, 3, 4, 5)[:, :, 1:3], 2, -1),
]


@pytest.mark.parametrize(("tensor", "count", "dim"), LAID_OUT)
def test_kernels_read_the_rows_that_a_view_has(tensor: torch.Tensor, count: int, dim: int) -> None:
    """Also where the dims behind the normalised ones have one element, so that rows seem to end with the tensor."""
    _, outer, length, inner = backward._form(tensor.shape, count, dim)
    assert inner == 1
    data, pitch = backward._laid_out(tensor, count, dim, length)
    room = data.untyped_storage().nbytes() // data.element_size() - data.storage_offset()
    assert (outer - 1) * pitch + length <= room
    assert torch.equal(data.as_strided((outer, length), (pitch, 1)), tensor.reshape(outer, length))


@pytest.mark.parametrize("shape", [(4, 8), (4, 8, 6)])
def test_one_element_at_a_time_is_always_aligned(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """bf16 beside fp32, at an address that no fp32 lies at. Launched on no GPU."""
    cases: list[backward._Case] = []

    def runner(case: backward._Case) -> backward.Run:
        cases.append(case)
        return lambda *_: None

    monkeypatch.setattr(backward, "_runner", runner)
    x = torch.zeros(prod(shape) + 1, dtype=torch.bfloat16)[1:].view(shape)
    dy, rstd = torch.zeros(shape), torch.ones(prod(shape) // 8)
    options = {"offset": 0.0, "casting": "t5", "centred": False, "bias": False, "count": 1, "dim": 1}
    backward.normalise_backward(dy, x, torch.ones(8), rstd, rstd, **options)
    (case,) = cases
    assert case.vec == 1
    plan = plans.columns(backward._COLUMNS, case.outer, case.length, 6, case.widest, case.alignment)
    assert plan.vec == 1


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "dim"), [((6, 1000), -1), ((6, 1000, 3), 1)])
def test_a_misaligned_half_beside_a_float_on_the_gpu(shape: tuple[int, ...], dim: int) -> None:
    x = torch.randn(prod(shape) + 1, device="cuda", dtype=torch.bfloat16)[1:].view(shape).requires_grad_()
    weight = torch.randn(1000, device="cuda", requires_grad=True)
    found = torch.autograd.grad(ops.rms_norm(x, (1000,), weight, casting="t5", dim=dim, backend="cuda").sum(), x)[0]
    wide = x.detach().double().requires_grad_()
    exact = ops.rms_norm(wide, (1000,), weight.double(), casting="t5", dim=dim, backend="eager").sum()
    torch.testing.assert_close(found.double(), torch.autograd.grad(exact, wide)[0], rtol=2**-7, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.parametrize(("tensor", "count", "dim"), LAID_OUT[:6])
def test_rows_that_end_before_the_tensor_does_on_the_gpu(tensor: torch.Tensor, count: int, dim: int) -> None:
    """Every gradient of x, whatever its own strides: of a sum, one element's, and of a concatenation, a slice's."""
    # `tensor.cuda()` would lay a slice out anew.
    whole = torch.empty(0).set_(tensor.untyped_storage()).cuda()
    x = whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).requires_grad_()
    assert x.stride() == tensor.stride()
    end = dim % x.dim() + 1
    shape = x.shape[end - count : end]
    weight = torch.randn(shape, device="cuda")
    for backend in ("cuda", "triton"):
        y = ops.layer_norm(x, shape, weight, backend=backend, dim=dim)
        wide = x.detach().double().requires_grad_()
        exact = ops.layer_norm(wide, shape, weight.double(), backend="eager", dim=dim)
        factors = torch.randn(torch.cat([y, y], -1).shape, device="cuda")
        for loss in (torch.sum, lambda y, by=factors: (torch.cat([y, y], -1) * by).sum()):
            (found,) = torch.autograd.grad(loss(y), x, retain_graph=True)
            (right,) = torch.autograd.grad(loss(exact), wide, retain_graph=True)
            torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("total", [False, True])
def test_a_plan_holds_every_length_up_to_a_cluster(size: int, total: bool) -> None:
    streams = backward_plans.Streams(size, size, size * total, 4)
    for length in (*range(1, 70), *(1 << bits for bits in range(7, 19)), *((1 << bits) - 1 for bits in range(7, 19))):
        vec = next(vec for vec in (16 // size, 4, 2, 1) if length % vec == 0)
        plan = backward_plans.pipeline(length, vec, streams, True)
        assert plan is not None and plan.fits(streams) and plan.stages >= plan.chunks
        assert plan.share * plan.cluster >= length > plan.share * (plan.cluster - 1)
        assert plan.threads * plan.items * plan.vec >= plan.share
    assert backward_plans.pipeline(262145, 1, streams, True) is None


def test_without_rows_the_parameters_have_no_gradient() -> None:
    x, weight, none = torch.empty(0, 7), torch.ones(7), torch.empty(0)
    options = {"offset": 0.0, "casting": "gemma", "centred": True, "bias": True, "count": 1, "dim": -1}
    dx, dweight, dbias = backward.normalise_backward(x, x, weight, none, none, **options)
    assert dx.shape == (0, 7) and dweight.equal(torch.zeros(7)) and dbias.equal(torch.zeros(7))


def test_without_the_first_gradient_the_second_passes_through() -> None:
    x, total = torch.randn(4, 7), torch.randn(7, 4).t()
    options = {"offset": 0.0, "casting": "gemma", "centred": False, "bias": False, "count": 1, "dim": -1}
    dx, dweight, dbias = backward.normalise_backward(None, x, torch.ones(7), x, x, dtotal=total, **options)
    assert dx.equal(total) and dx.is_contiguous() and dweight.equal(torch.zeros(7)) and dbias.numel() == 0


class Example:
    """Arguments of a backward, and its answers by the formula in a dtype of choice."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        *,
        dy: torch.dtype | None = None,
        weight: torch.dtype | None = torch.float32,
        bias: bool = False,
        total: bool = False,
        centred: bool = False,
        casting: str = "gemma",
        offset: float = 0.0,
        count: int = 1,
        dim: int = -1,
        away: float = 0.0,
    ) -> None:
        device = torch.device("cuda", 0)
        generator = torch.Generator(device).manual_seed(0)

        def normal(size: tuple[int, ...], kind: torch.dtype) -> torch.Tensor:
            return torch.randn(size, generator=generator, device=device, dtype=torch.float32).to(kind)

        dim %= len(shape)
        self.dims = tuple(range(dim + 1 - count, dim + 1))
        self.others = tuple(d for d in range(len(shape)) if d not in self.dims)
        self.x = (normal(shape, torch.float32) * 2 + away).to(dtype)
        self.dy = normal(shape, dy or dtype)
        self.dtotal = normal(shape, dtype) if total else None
        normalised = tuple(shape[d] for d in self.dims)
        self.weight = normal(normalised, weight) if weight else None
        wide = self.x.double()
        mean = wide.mean(self.dims, keepdim=True) if centred else torch.zeros((), device=device).double()
        rstd = ((wide - mean).square().mean(self.dims, keepdim=True) + 1e-5).rsqrt()
        self.mean = mean.float() if centred else torch.empty(0, device=device)
        self.rstd = rstd.float()
        self.rounded = {"gemma": None, "llama": dtype, "t5": weight if weight in HALVES else None}[casting]
        self.bias, self.centred, self.offset = bias, centred, offset
        self.options = {"offset": offset, "casting": casting, "centred": centred, "bias": bias}
        self.largest = 0.0
        self.options |= {"count": count, "dim": dim}

    def formula(self, kind: torch.dtype) -> list[torch.Tensor]:
        x, dy, rstd = self.x.to(kind), self.dy.to(kind), self.rstd.to(kind)
        x_hat = (x - self.mean.to(kind) if self.centred else x) * rstd
        g = dy
        if self.weight is not None:
            wide = (self.weight.to(kind) + self.offset).reshape(
                [size if d in self.dims else 1 for d, size in enumerate(x.shape)]
            )
            g = dy * wide
        self.largest = (g * rstd).abs().max().item()
        dx = g - x_hat * (g * x_hat).mean(self.dims, keepdim=True)
        if self.centred:
            dx = dx - g.mean(self.dims, keepdim=True)
        dx = dx * rstd
        if self.dtotal is not None:
            dx = dx + self.dtotal.to(kind)
        found = []
        if self.weight is not None:
            multiplied = x_hat.to(self.rounded).to(kind) if self.rounded else x_hat
            found.append(dy * multiplied)
        if self.bias:
            found.append(dy)
        return [dx, *(each.sum(self.others) if self.others else each for each in found)]

    def run(self) -> list[torch.Tensor]:
        found = backward.normalise_backward(
            self.dy, self.x, self.weight, self.mean, self.rstd, dtotal=self.dtotal, **self.options
        )
        return [gradient for gradient in found if gradient.numel()]

    def check(self) -> None:
        """Within four times the errors of the same formula in fp32, rounded once; and the same again, bit for bit."""
        got, expected, honest = self.run(), self.formula(torch.float64), self.formula(torch.float32)
        assert len(got) == len(expected)
        for ours, truth, ruler in zip(got, expected, honest, strict=True):
            assert ours.shape == truth.shape and ours.is_contiguous()
            error, allowed = ours.double() - truth, ruler.to(ours.dtype).double() - truth
            # The formula in fp32 may be exact by chance: a rounding of its largest term is always allowed.
            least = torch.finfo(torch.float32).eps * max(truth.abs().max().item(), self.largest)
            assert error.abs().max() <= 4 * allowed.abs().max() + least
            assert error.square().mean().sqrt() <= 4 * allowed.square().mean().sqrt() + least
        assert all(map(torch.equal, got, self.run()))


ROWS = [(1, 1), (3, 2), (70, 3), (5, 31), (1000, 64), (77, 100), (4, 129), (513, 256), (31, 1000), (300, 1024)]
ROWS += [(9, 1023), (41, 2048), (200, 4096), (19, 5000), (150, 4097), (7, 8192), (65, 12345), (40, 16384), (9, 32768)]
ROWS += [(5, 65536), (3, 100003), (33, 131072), (2, 262144), (17, 262144), (3, 262143), (2, 300001), (1, 1 << 20)]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    Example(shape, dtype, weight=dtype, bias=True, centred=True).check()
    Example(shape, dtype, weight=dtype).check()
    Example(shape, dtype, weight=dtype, total=True).check()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(50, 768), (9, 1001), (6, 20000), (2, 270001)], ids=str)
def test_dtypes_and_castings(shape: tuple[int, int]) -> None:
    for dtype, weight in product(TYPES.values(), (None, torch.float32, torch.bfloat16)):
        Example(shape, dtype, weight=weight, offset=1.0).check()
    for dtype, casting in ((torch.bfloat16, "llama"), (torch.float32, "t5"), (torch.float16, "t5")):
        Example(shape, dtype, weight=torch.bfloat16, dy=torch.bfloat16, casting=casting).check()
    for dtype, dy in ((torch.float32, torch.float16), (torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16)):
        Example(shape, dtype, dy=dy, weight=torch.float32, bias=True, centred=True).check()
    Example(shape, torch.bfloat16, weight=None, bias=True, centred=True).check()
    Example(shape, torch.float32, centred=True, bias=True, away=1000.0).check()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "count", "dim"),
    [
        ((3, 64, 40, 50), 1, 1),
        ((5, 7, 33), 1, 1),
        ((2, 3000, 65), 1, 1),
        ((40, 3), 1, 0),
        ((9, 4, 5, 24), 2, 2),
        ((8, 6, 50), 2, 2),
        ((30, 20), 2, 1),
        ((100,), 1, 0),
    ],
    ids=str,
)
def test_dims(shape: tuple[int, ...], count: int, dim: int, dtype: torch.dtype) -> None:
    Example(shape, dtype, weight=dtype, bias=True, centred=True, count=count, dim=dim).check()
    Example(shape, dtype, weight=dtype, total=True, count=count, dim=dim).check()
    Example(shape, dtype, weight=None, count=count, dim=dim).check()


@pytest.mark.gpu
def test_a_row_of_one_element_has_a_gradient_of_exactly_0() -> None:
    for shape, dim in (((100, 1), 1), ((10, 1, 7), 1)):
        dx = Example(shape, torch.float32, bias=True, centred=True, dim=dim).run()[0]
        assert dx.equal(torch.zeros_like(dx))


def _odd(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, one element past an aligned address."""
    buffer = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    return buffer[1:].view(tensor.shape).copy_(tensor)


def _apart(tensor: torch.Tensor, gap: int) -> torch.Tensor:
    """The same values in rows that lie `gap` elements further apart."""
    wide = torch.empty(*tensor.shape[:-1], tensor.shape[-1] + gap, dtype=tensor.dtype, device=tensor.device)
    return wide[..., : tensor.shape[-1]].copy_(tensor)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(70, 24), (50, 512), (9, 4096), (5, 40000), (2, 270000)], ids=str)
def test_layouts(shape: tuple[int, int], dtype: torch.dtype) -> None:
    example = Example(shape, dtype, weight=dtype, bias=True, centred=True, total=True)
    plain = [gradient.double() for gradient in example.run()]
    x, dy, weight = example.x, example.dy, example.weight
    assert weight is not None and example.dtotal is not None
    for x_now, dy_now in (
        (_odd(x), dy),
        (_odd(x), _odd(dy)),
        (_apart(x, 8), dy),
        (_apart(x, 3), _apart(dy, 1)),
        (x, dy.t().contiguous().t()),
    ):
        example.x, example.dy = x_now, dy_now
        example.check()
        for ours, before in zip(example.run(), plain, strict=True):
            rounding = torch.finfo(dtype).eps * before.abs().max().item()
            torch.testing.assert_close(ours.double(), before, rtol=0, atol=rounding)
    example.dy = dy[:1].expand(shape)
    example.weight = _odd(weight)
    example.dtotal = _apart(example.dtotal, 5)
    example.check()
    example.dy = dy[:, :1].expand(shape)
    example.check()


@pytest.mark.gpu
@pytest.mark.slow
def test_more_than_two_to_the_31_elements() -> None:
    for shape in ((2**21 + 9, 1024), (33000, 65536)):
        x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        dy = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(shape[1], device="cuda")
        rstd = torch.ones(shape[0], device="cuda")
        options = {"offset": 0.0, "casting": "gemma", "centred": False, "bias": True, "count": 1, "dim": 1}
        dx, dweight, dbias = backward.normalise_backward(dy, x, weight, rstd, rstd, **options)
        for row in (0, shape[0] // 2, shape[0] - 1):
            g, x_hat = dy[row].double() * weight, x[row].double()
            expected = g - x_hat * (g * x_hat).mean()
            torch.testing.assert_close(dx[row].double(), expected, rtol=2**-7, atol=1e-4)
        exact_dweight, exact_dbias = torch.zeros(2, shape[1], device="cuda", dtype=torch.float64)
        for first in range(0, shape[0], 1 << 16):
            part = dy[first : first + (1 << 16)].double()
            exact_dbias += part.sum(0)
            exact_dweight += (part * x[first : first + (1 << 16)].double()).sum(0)
        torch.testing.assert_close(dbias.double(), exact_dbias, rtol=1e-4, atol=0.1)
        torch.testing.assert_close(dweight.double(), exact_dweight, rtol=1e-4, atol=0.1)
        assert prod(dx.shape) > 2**31
        del x, dy, dx


@pytest.mark.gpu
def test_a_cuda_graph_replays_it() -> None:
    for shape in ((64, 1000), (4, 65536), (2, 300001)):
        example = Example(shape, torch.bfloat16, bias=True, centred=True)
        example.run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = example.run()
        example.dy.normal_()
        graph.replay()
        assert all(map(torch.equal, captured, example.run()))
