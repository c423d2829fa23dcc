"""The norms' CUDA forward against float64, in every place a row can be held; and it compiles where no GPU is."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelyard.kernels.norms.forward as norms
from kernelyard.core.workload import DTYPES
from kernelyard.kernels import nvrtc, plans
from kernelyard.kernels.counters import launched
from kernelyard.kernels.norms.shapes import broadcast, span
from kernelyard.kernels.support import TYPES

FOLDER = Path(norms.__file__).parent
ROUNDING = {"torch.float32": 2**-24, "torch.bfloat16": 2**-9, "torch.float16": 2**-12}

# Kernel by kernel: shape, dim, count.
Case = tuple[tuple[int, ...], int, int]
ROWS: list[Case] = [
    ((5, 1), -1, 1),
    ((7, 3), -1, 1),
    ((9, 96), -1, 1),
    ((3, 1000), -1, 1),
    ((300, 1023), -1, 1),
    ((6, 8192), -1, 1),
]
ROWS += [((4, 4099), -1, 1), ((2, 16384), -1, 1), ((3, 5, 8, 16), -1, 2)]
STAGED: list[Case] = [((3, 32768), -1, 1), ((2, 40_003), -1, 1), ((2, 262_144), -1, 1), ((2, 262_151), -1, 1)]
CHIP: list[Case] = [((3, 2**20 + 8), -1, 1), ((5, 2**21 + 8), -1, 1), ((2, 1_500_003), -1, 1), ((1, 2_000_000), -1, 1)]
SPLIT: list[Case] = [((2, 17_000_000), -1, 1), ((1, 17_000_003), -1, 1)]
COLUMNS: list[Case] = [
    ((3, 17, 5), 1, 1),
    ((70, 33), 0, 1),
    ((4, 64, 1024), 1, 1),
    ((2, 4, 16, 40), 2, 2),
    ((2, 9001, 24), 1, 1),
]
HELD: dict[str, list[Case]] = {"rows": ROWS, "staged": STAGED, "chip": CHIP, "split": SPLIT, "columns": COLUMNS}
CASES = [pytest.param(kernel, *case, id=f"{kernel}-{case}") for kernel, cases in HELD.items() for case in cases]


def _statistics(x: torch.Tensor, dims: list[int], eps: float, *, centred: bool) -> tuple[torch.Tensor, torch.Tensor]:
    mean = x.mean(dims, keepdim=True) if centred else torch.zeros((), dtype=x.dtype, device=x.device)
    return mean, ((x - mean).square().mean(dims, keepdim=True) + eps).rsqrt()


def _formula(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, offset: float, **where: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dims = list(range(*span(x, where["count"], where["dim"])))
    mean, rstd = _statistics(x, dims, eps, centred=where["centred"])
    y = (x - mean) * rstd
    if weight is not None:
        y = y * (offset + broadcast(weight.to(x.dtype), x, where["dim"]))
    if bias is not None:
        y = y + broadcast(bias.to(x.dtype), x, where["dim"])
    return y, mean.flatten() if where["centred"] else mean.new_empty(0), rstd.flatten()


def _compare(
    names: str, got: tuple[Any, ...], exact: tuple[Any, ...], honest: tuple[Any, ...], *, chance: float
) -> None:
    """No further from float64 than 8 times the same formula in float32, or than 2 roundings of the dtype.

    `chance` is what a mean in float32 is typically off by in any order of summation, where that is more than eager was
    off: of two rows of 262144, eager's worst is between 6e-12 and 5e-10, and in 9 draws of 2000 ours was beyond 8
    times it.

    The parts of a row have means of their own, each rounded in proportion to its size: distances from them are off by
    as much, and so is rstd where the mean is far from zero.
    """
    means = dict(zip(names.split(), exact, strict=True)).get("mean")
    far = float(means.abs().max()) if means is not None and means.numel() else 0.0
    for name, mine, right, eager in zip(names.split(), got, exact, honest, strict=True):
        assert mine.shape == right.shape and mine.is_contiguous(), name
        if not mine.numel():
            continue
        rounding = 2 * ROUNDING[str(mine.dtype)] * right.abs()
        if name == "rstd":
            rounding = rounding * (1 + far * right.abs())
        ruler = (eager.double() - right).abs().max().clamp(min=chance if name == "mean" else 0.0)
        allowed = 8 * ruler + rounding
        excess = ((mine.double() - right).abs() - allowed).max().item()
        assert excess <= 0, f"{name} is off by {excess} more than allowed"


def _chance(x: torch.Tensor, *, count: int, dim: int, **_: Any) -> float:
    """Sums of k elements grow with their root and are rounded in proportion: a mean of n is off by this, whatever k."""
    length = x.shape[slice(*span(x, count, dim))].numel()
    return ROUNDING["torch.float32"] * float(x.double().std(correction=0)) / max(length, 1) ** 0.5 if x.numel() else 0.0


def _parameters(x: torch.Tensor, dtype: torch.dtype, count: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = x.shape[slice(*span(x, count, dim))]
    return tuple(torch.randn(shape, device=x.device).to(dtype) for _ in range(2))  # type: ignore[return-value]


def _prove(
    x: torch.Tensor, weight: Any, bias: Any, *, casting: str = "gemma", offset: float = 0.0, **where: Any
) -> None:
    before = x.clone()
    got = norms.normalise(x, weight, bias, eps=1e-5, offset=offset, casting=casting, **where)
    assert torch.equal(x, before)
    exact = _formula(x.double(), weight, bias, 1e-5, offset, **where)
    honest = _formula(x.float(), weight, bias, 1e-5, offset, **where)
    _compare("y mean rstd", got, exact, honest, chance=_chance(x, **where))
    again = norms.normalise(x, weight, bias, eps=1e-5, offset=offset, casting=casting, **where)
    assert all(torch.equal(first, second) for first, second in zip(got, again, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize(("kernel", "shape", "dim", "count"), CASES)
def test_normalise(kernel: str, shape: tuple[int, ...], dim: int, count: int, dtype: torch.dtype) -> None:
    if dtype is torch.float32 and dim == -1 and shape[-1] > 10_000:
        # As many bytes, odd, and no more 16-byte vectors than the even row has, wherever the row starts.
        shape = (shape[0], shape[1] // 2 - 5)
    x = torch.randn(shape, device="cuda").to(dtype)
    where: dict[str, Any] = {"count": count, "dim": dim}
    weight, bias = _parameters(x, dtype, count, dim)
    launches = launched(f"layer_norm_cuda.{kernel}"), launched(f"rms_norm_cuda.{kernel}")
    _prove(x, weight, bias, centred=True, **where)
    _prove(x, weight, None, centred=False, offset=1.0, **where)
    assert launched(f"layer_norm_cuda.{kernel}") > launches[0] and launched(f"rms_norm_cuda.{kernel}") > launches[1]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(7, 1000), (3, 1027), (2, 70_000), (2, 1_200_000), (40, 30)], ids=str)
def test_weights_of_every_dtype_and_none(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape, device="cuda").to(dtype)
    for of_weight in DTYPES.values():
        for dim in (-1, 0) if shape[-1] < 100 else (-1,):
            weight, bias = _parameters(x, of_weight, 1, dim)
            _prove(x, weight, bias, centred=True, count=1, dim=dim)
            _prove(x, weight, None, centred=True, count=1, dim=dim)
            y, _, _ = norms.normalise(
                x, weight, None, eps=1e-5, offset=0.0, casting="t5", centred=False, count=1, dim=dim
            )
            assert y.dtype == of_weight
    _prove(x, None, None, centred=True, count=1, dim=-1)
    _prove(x, None, None, centred=False, count=1, dim=-1)
    # A weight one element off any alignment.
    weight, bias = _parameters(torch.empty(1, shape[-1] + 1, device="cuda"), dtype, 1, -1)
    _prove(x, weight[1:], bias[1:], centred=True, count=1, dim=-1)


@pytest.mark.gpu
def test_the_castings_round_where_the_models_do() -> None:
    x = torch.randn(9, 520, device="cuda").bfloat16()
    hat = x.float() * (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    for of_weight in (torch.bfloat16, torch.float32):
        weight = torch.randn(520, device="cuda").to(of_weight)
        for casting, expected in (
            ("gemma", (hat * weight.float()).bfloat16()),
            ("llama", (weight.float() * hat.bfloat16().float()).bfloat16()),
            ("t5", (weight.float() * hat.to(of_weight).float()).to(of_weight)),
        ):
            options: dict[str, Any] = {"eps": 1e-6, "offset": 0.0, "casting": casting}
            y, _, _ = norms.normalise(x, weight, None, centred=False, count=1, dim=-1, **options)
            assert y.dtype == expected.dtype
            # The reciprocal root differs in its last bit, which moves a rounding here and there.
            assert (y != expected).float().mean() < (0.9 if y.dtype == torch.float32 else 0.01), casting
            torch.testing.assert_close(y, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize(
    "shape",
    [(5, 1), (7, 33), (4, 1000), (3, 1023), (2, 16384), (2, 70_003), (2, 262_144), (2, 1_300_000), (2, 5_000_001)],
)
def test_add_normalise(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, residual = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
    weight, _ = _parameters(x, dtype, 1, -1)
    where: dict[str, Any] = {"count": 1, "dim": -1, "centred": False}
    y, total, rstd = norms.add_normalise(x, residual, weight, eps=1e-6, offset=0.5, casting="gemma")
    assert torch.equal(total, x + residual)
    exact = _formula(total.double(), weight, None, 1e-6, 0.5, **where)
    honest = _formula(total.float(), weight, None, 1e-6, 0.5, **where)
    _compare("y mean rstd", (y, rstd.new_empty(0), rstd), exact, honest, chance=0.0)
    strided = torch.randn(shape[1], shape[0], device="cuda").to(dtype).t()
    _, total, _ = norms.add_normalise(strided, residual, weight, eps=1e-6, offset=0.5, casting="gemma")
    assert torch.equal(total, strided + residual)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("length", [100, 1024, 40_000, 1_200_000])
def test_layouts_and_a_mean_far_from_zero(length: int, dtype: torch.dtype) -> None:
    weight, bias = (torch.randn(length, device="cuda").to(dtype) for _ in range(2))
    wide = torch.randn(3, length + 13, device="cuda").to(dtype)
    where: dict[str, Any] = {"count": 1, "dim": -1, "centred": True}
    _prove(wide[:, 5 : 5 + length], weight, bias, **where)
    _prove(wide[:, 8 : 8 + length], weight, bias, **where)
    _prove(wide.flatten()[1 : 1 + length].view(1, length), weight, bias, **where)
    _prove(torch.randn(length, 3, device="cuda").to(dtype).t(), weight, bias, **where)
    _prove(wide[:1, :length].expand(4, length), weight, bias, **where)
    far = (torch.randn(3, length, device="cuda") + 1000).to(dtype)
    _prove(far, weight, bias, **where)


@pytest.mark.gpu
def test_no_rows_and_a_cuda_graph_of_rows_over_the_chip() -> None:
    options: dict[str, Any] = {"eps": 1e-5, "offset": 0.0, "casting": "gemma", "centred": True, "count": 1, "dim": -1}
    y, mean, rstd = norms.normalise(torch.empty(0, 8, device="cuda"), None, None, **options)
    assert y.shape == (0, 8) and not mean.numel() and not rstd.numel()
    x = torch.randn(3, 2**21, device="cuda", dtype=torch.bfloat16)
    norms.normalise(x, None, None, **options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, _, _ = norms.normalise(x, None, None, **options)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(y, norms.normalise(x, None, None, **options)[0])


FIT = plans.Fit(8, True)
CHOSEN: list[plans.Plan] = [
    plans.RowPlan(plans.Fit(8, False), 64, 2, 4),
    plans.RowPlan(FIT, 512, 1, 4),
    plans.RowPlan(plans.Fit(1, False), 4, 32, 3),
    plans.SplitPlan(FIT, 512, 4, 8, 1, 1),
    plans.ColumnPlan(8, 4, 64, 2),
    plans.ColumnPlan(8, 4, 64, 2, 3, 4),
    plans.StagedPlan(FIT, 512, 1, 8, 16),
    plans.StagedPlan(plans.Fit(8, False), 256, 1, 4, 16, one_in_registers=True),
    plans.ChipPlan(FIT, 2, 512, 1, 132, 4000, 13, 4, 0, 7),
    plans.ChipPlan(plans.Fit(8, False), 1, 512, 2, 132, 4000, 13, 3, 0, 3),
    plans.ChipPlan(plans.Fit(8, False), 1, 256, 4, 132, 7000, 13, 2, 2, 6),
]
# (wanted arch, weight, rounded, out, has weight, has bias, centred, add)
MACROS = ("WEIGHT", "ROUNDED", "OUT", "HAS_WEIGHT", "HAS_BIAS", "CENTRED", "ADD", "VECTORS")
VARIANTS = [
    ("Bfloat", "float", "Bfloat", 1, 1, 1, 0, 1),
    ("float", "float", "float", 1, 0, 0, 0, 0),
    ("Half", "Half", "Half", 0, 0, 0, 1, 1),
    ("float", "Bfloat", "Bfloat", 1, 0, 0, 1, 1),
]


# Where time counts each is compiled once, and for each architecture one: all twelve are two minutes of a core.
QUICK = set(zip(VARIANTS, ("sm_90a", "sm_80", "sm_75", "sm_90a"), strict=True))


@pytest.mark.parametrize(
    ("variant", "arch"),
    [
        pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow, id="-".join(map(str, pair)))
        for pair in product(VARIANTS, ("sm_75", "sm_80", "sm_90a"))
    ],
)
def test_the_kernels_compile(arch: str, variant: tuple[int | str, ...]) -> None:
    assert set(TYPES.values()) == {"float", "Bfloat", "Half"}
    for plan in CHOSEN:
        clusters, copies = plan.cluster > 1, isinstance(plan, plans.ChipPlan | plans.StagedPlan)
        if (clusters and arch != "sm_90a") or (copies and arch == "sm_75"):
            continue
        macros = (("TYPE", "Bfloat"), *plan.macros, *zip(MACROS, variant, strict=True))
        code = nvrtc._compile(FOLDER / f"forward_{plan.source}.cu", macros, arch)
        for kernel in plan.kernels:
            assert f"{kernel}_forward".encode() in code
