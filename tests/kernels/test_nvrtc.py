"""CUDA C++ compiles through NVRTC without a GPU, once."""

from itertools import product
from pathlib import Path

import pytest

from kernelyard import ops
from kernelyard.kernels import nvrtc, plans

SOFTMAX = Path(ops.__file__).parent / "softmax"
KERNEL = 'extern "C" __global__ void fill(float* gx) { gx[threadIdx.x] = VALUE; }\n'


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "fill.cu"
    path.write_text(KERNEL)
    return path


def _entries(source: Path) -> list[Path]:
    return sorted((source.parent / "cache" / "cubin").iterdir())


def test_a_second_build_compiles_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = nvrtc.cubin(source, (("VALUE", 1),), "sm_90a")
    monkeypatch.setattr(nvrtc, "_compile", lambda *_: pytest.fail("compiled again"))
    assert nvrtc.cubin(source, (("VALUE", 1),), "sm_90a") == first
    assert len(_entries(source)) == 1


def test_whatever_changes_the_code_changes_the_entry(source: Path) -> None:
    nvrtc.cubin(source, (("VALUE", 1),), "sm_90a")
    nvrtc.cubin(source, (("VALUE", 2),), "sm_90a")
    nvrtc.cubin(source, (("VALUE", 1),), "sm_80")
    source.with_name("added.cuh").write_text("// a header it could include\n")
    nvrtc.cubin(source, (("VALUE", 1),), "sm_90a")
    assert len(_entries(source)) == 4


@pytest.mark.parametrize("damage", [b"", b"\x7fELF short", None])
def test_a_damaged_entry_is_compiled_anew(source: Path, damage: bytes | None) -> None:
    whole = nvrtc.cubin(source, (("VALUE", 1),), "sm_90a")
    (entry,) = _entries(source)
    stored = entry.read_bytes()
    entry.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]) if damage is None else damage)
    assert nvrtc.cubin(source, (("VALUE", 1),), "sm_90a") == whole
    assert entry.read_bytes() == stored


def test_a_cache_that_cannot_be_written_is_done_without(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source.parent / "file").write_text("not a folder")
    monkeypatch.setenv("KERNELYARD_CACHE", str(source.parent / "file"))
    assert nvrtc.cubin(source, (("VALUE", 1),), "sm_90a").startswith(b"\x7fELF")


def test_a_compile_error_is_one_line_and_keeps_the_log(source: Path) -> None:
    source.write_text(KERNEL.replace("VALUE;", "VALUE"))
    with pytest.raises(nvrtc.CompileError, match=r"fill\.cu does not compile: .*error: expected") as caught:
        nvrtc.cubin(source, (("VALUE", 1),), "sm_90a")
    assert "\n" not in str(caught.value)
    assert "1 error detected" in caught.value.log


def test_cudas_own_headers_are_found(source: Path) -> None:
    source.write_text("#include <cuda_bf16.h>\n" + KERNEL)
    assert nvrtc.cubin(source, (("VALUE", 1),), "sm_80")


# One dtype for each architecture where time counts: all nine are two minutes of a core.
QUICK = {("Half", "sm_75"), ("float", "sm_80"), ("Bfloat", "sm_90a")}


@pytest.mark.parametrize(
    ("dtype", "arch"),
    [
        pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow)
        for pair in product(("float", "Bfloat", "Half"), ("sm_75", "sm_80", "sm_90a"))
    ],
)
def test_the_softmax_kernels_compile(arch: str, dtype: str) -> None:
    wide = 4 if dtype == "float" else 8
    fit = plans.Fit(wide, True)
    chosen: list[plans.Plan] = [
        plans.RowPlan(fit, 64, 2, 4),
        plans.SplitPlan(fit, 128, 2, 8, 1, 1),
        plans.ColumnPlan(wide, 4, 64, 2),
    ]
    if arch != "sm_75":
        chosen.append(plans.ChipPlan(fit, 1, 512, 2, 132, 7000, 13, 2, 4, 6))
    if arch == "sm_90a":
        chosen.append(plans.StagedPlan(fit, 256, 1, 2, 16))
    for plan in chosen:
        code = nvrtc._compile(SOFTMAX / f"{plan.source}.cu", (("TYPE", dtype), *plan.macros), arch)
        for kernel in plan.kernels:
            for direction in ("forward", "backward"):
                assert f"{kernel}_{direction}".encode() in code
