"""Sixty solutions to KernelBench's level 1, problems 9 to 18: forty by `load_inline`, twenty in Triton, some faulty.

Matrix products, because their inputs are small: of problems 19 to 28, each 6.4 GB, KernelBench draws seven sets on one
core for every candidate, ten seconds a set. The numbers are without a gap, because it takes them as a range. The
kernels are plain and honest; the faulty ones fail in as many ways as there are.
"""

from dataclasses import dataclass
from pathlib import Path

FIRST, LAST = 9, 18


@dataclass(frozen=True)
class Form:
    """How a problem's answer comes of one matrix product: its inputs as matrices, and what of the product is kept."""

    a: str = "x"
    b: str = "y"
    cuda_kept: str = "true"
    triton_kept: str = "m_c"
    diagonal: bool = False
    """No product: the rows of the second input times the elements of the first."""


FORMS = {
    9: Form(),
    10: Form(a="x.reshape({-1, x.size(-1)})"),
    11: Form(a="x.reshape({-1, x.size(-1)})"),
    12: Form(diagonal=True),
    13: Form(),
    14: Form(cuda_kept="column >= row", triton_kept="m_c & (o_n[None, :] >= o_m[:, None])"),
    15: Form(cuda_kept="column <= row", triton_kept="m_c & (o_n[None, :] <= o_m[:, None])"),
    16: Form(a="x.t()"),
    17: Form(b="y.t()"),
    18: Form(a="x.t()", b="y.t()"),
}

_CUDA = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
{kernel}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {{
    {launch}
}}
"""
extension = load_inline(
    "{name}", "torch::Tensor forward(torch::Tensor x, torch::Tensor y);", SOURCE, functions=["forward"]{flags}
)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        {body}
'''
_PRODUCT = """constexpr int TILE = {tile}, EACH = {each}, DEEP = {deep}, SIDE = TILE / EACH, THREADS = SIDE * SIDE;
__global__ void __launch_bounds__(THREADS) {name}(
    const float* a, const float* b, float* c, long m, long n, long k, long am, long ak, long bk, long bn) {{
    __shared__ float s_a[DEEP][TILE + 4], s_b[DEEP][TILE + 4];
    const long first_row = (long)blockIdx.y * TILE, first_column = (long)blockIdx.x * TILE;
    const int down = threadIdx.x / SIDE, across = threadIdx.x % SIDE;
    float r_c[EACH][EACH] = {{}};
    for (long start = 0; start < k; start += DEEP) {{
        for (int i = threadIdx.x; i < DEEP * TILE; i += THREADS) {{
            // Neighbouring threads read neighbouring elements, whichever way a matrix lies.
            const int da = ak == 1 ? i % DEEP : i / TILE, ta = ak == 1 ? i / DEEP : i % TILE;
            const int db = bn == 1 ? i / TILE : i % DEEP, tb = bn == 1 ? i % TILE : i / DEEP;
            const long row = first_row + ta, column = first_column + tb;
            s_a[da][ta] = row < m && start + da < k ? a[row * am + (start + da) * ak] : 0.f;
            s_b[db][tb] = column < n && start + db < k ? b[(start + db) * bk + column * bn] : 0.f;
        }}
        __syncthreads();
        for (int d = 0; d < DEEP; d++) {{
            float r_a[EACH], r_b[EACH];
            for (int i = 0; i < EACH; i++) r_a[i] = s_a[d][down * EACH + i];
            for (int j = 0; j < EACH; j++) r_b[j] = s_b[d][across * EACH + j];
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++) r_c[i][j] += r_a[i] * r_b[j];
        }}
        __syncthreads();
    }}
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {{
            const long row = first_row + down * EACH + i, column = first_column + across * EACH + j;
            if (row < m && column < n) c[row * n + column] = {kept} ? r_c[i][j] : 0.f;
        }}
}}"""
_LAUNCH_PRODUCT = """auto a = {a}, b = {b};
    const long m = a.size(0), n = b.size(1), k = a.size(1);
    auto c = torch::empty({{m, n}}, x.options());
    const dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    {name}<<<grid, THREADS>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k,
                              a.stride(0), a.stride(1), b.stride(0), b.stride(1));
    auto shape = x.sizes().vec();
    shape.back() = n;
    return x.dim() > 2 ? c.view(shape) : c;"""
_DIAGONAL = """__global__ void {name}(const float* a, const float* b, float* c, long n) {{
    for (long j = threadIdx.x; j < n; j += {tile}) c[blockIdx.x * n + j] = a[blockIdx.x] * b[blockIdx.x * n + j];
}}"""
_LAUNCH_DIAGONAL = """auto c = torch::empty_like(y);
    {name}<<<y.size(0), {tile}>>>(x.data_ptr<float>(), y.data_ptr<float>(), c.data_ptr<float>(), y.size(1));
    return c;"""

_TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(p_a, p_b, p_c, M, N, K, am, ak, bk, bn, TILE: tl.constexpr, DEEP: tl.constexpr):
    o_m = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    o_n = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    b_c = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, K, DEEP):
        o_k = start + tl.arange(0, DEEP)
        m_a = (o_m[:, None] < M) & (o_k[None, :] < K)
        m_b = (o_k[:, None] < K) & (o_n[None, :] < N)
        b_a = tl.load(p_a + o_m[:, None] * am + o_k[None, :] * ak, mask=m_a, other=0.0)
        b_b = tl.load(p_b + o_k[:, None] * bk + o_n[None, :] * bn, mask=m_b, other=0.0)
        b_c = tl.dot(b_a, b_b, b_c, input_precision="ieee")
    m_c = (o_m[:, None] < M) & (o_n[None, :] < N)
    b_c = tl.where({kept}, b_c, 0.0)
    tl.store(p_c + o_m[:, None] * N + o_n[None, :], b_c, mask=m_c)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        a, b = {a}, {b}
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, device=x.device)
        grid = (triton.cdiv(n, {tile}), triton.cdiv(m, {tile}))
        product_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), TILE={tile}, DEEP=32, num_warps={warps})
        return c.view(*x.shape[:-1], n) if x.dim() > 2 else c
"""
_TRITON_DIAGONAL = """
import torch
import triton
import triton.language as tl


@triton.jit
def diagonal_kernel(p_a, p_b, p_c, N, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    for start in range(0, N, BLOCK):
        o = start + tl.arange(0, BLOCK)
        tl.store(p_c + i * N + o, tl.load(p_a + i) * tl.load(p_b + i * N + o, mask=o < N), mask=o < N)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        c = torch.empty_like(y)
        diagonal_kernel[(y.shape[0],)](x, y, c, y.shape[1], BLOCK={tile})
        return c
"""

# One for each problem, in order: what its last CUDA sample does in place of `return extension.forward(x, y)`.
FAULTS = {
    "does not compile": "return extension.forward(x, y)",
    "wrong by a thousandth": "return extension.forward(x, y) * 1.001",
    "another shape": "return extension.forward(x, y)[:1]",
    "raises": "raise ValueError('not today')",
    "reads far beyond": "return extension.forward(x, y)",
    "never answers": "import time; time.sleep(1e6)",
    "ends its process": "import os; os._exit(3)",
    "changes its input": "z = extension.forward(x, y); x.zero_(); return z",
    "another dtype": "return extension.forward(x, y).half()",
    "remembers the first answer": (
        "self.__dict__.setdefault('first', extension.forward(x, y)); return self.__dict__['first'].clone()"
    ),
}


def cuda(number: int, tile: int, each: int, deep: int, *, flags: str = "", fault: str = "") -> str:
    """A solution by `load_inline`: square tiles, so many elements squared a thread, so deep a step."""
    form, name = FORMS[number], f"problem_{number}_{tile}_{each}_{deep}"
    shape = {"name": name, "tile": tile, "each": each, "deep": deep, "kept": form.cuda_kept}
    if form.diagonal:
        kernel, launch = _DIAGONAL.format(**shape), _LAUNCH_DIAGONAL.format(**shape)
    else:
        kernel, launch = _PRODUCT.format(**shape), _LAUNCH_PRODUCT.format(name=name, a=form.a, b=form.b)
    if fault == "does not compile":
        kernel = kernel.replace("{", "{ undeclared = 1;", 1)
    if fault == "reads far beyond":
        launch = launch.replace("a.data_ptr<float>()", "a.data_ptr<float>() + (1L << 40)")
    body = FAULTS.get(fault, "return extension.forward(x, y)")
    return _CUDA.format(kernel=kernel, launch=launch, name=name, flags=flags, body=body)


def triton(number: int, tile: int, warps: int) -> str:
    """A solution in Triton."""
    form = FORMS[number]
    if form.diagonal:
        return _TRITON_DIAGONAL.format(tile=16 * tile)
    a, b = (view.replace("{", "").replace("}", "") for view in (form.a, form.b))
    return _TRITON.format(a=a, b=b, kept=form.triton_kept, tile=tile, warps=warps)


def write(cuda_folder: Path, triton_folder: Path, both: Path, problems: range) -> int:
    """The candidates to `problems`, by KernelBench's names: four by `load_inline` and two in Triton for each.

    KernelBench judges one kind in a run, so they lie in a folder each, and in one for us, where the Triton samples
    are 4 and 5. Returns how many there are.
    """
    for folder in (cuda_folder, triton_folder, both):
        folder.mkdir(parents=True)
    optimised = ', extra_cuda_cflags=["-O3"], extra_cflags=["-O3"]'
    for number in problems:
        texts = [
            cuda(number, 64, 4, 16),
            cuda(number, 64, 4, 8),
            cuda(number, 128, 8, 8, flags=optimised),
            cuda(number, 32, 2, 32, fault=list(FAULTS)[number - FIRST]),
        ]
        second = triton(number, 128, 8)
        if number % 5 == 0:
            second = second.replace("tl.load", "tl.lod", 1)
        elif number % 5 == 1:
            second = second.replace("class ModelNew", "class Model")
        for sample, text in enumerate(texts):
            for folder in (cuda_folder, both):
                (folder / f"level_1_problem_{number}_sample_{sample}_kernel.py").write_text(text)
        for sample, text in enumerate([triton(number, 64, 4), second]):
            (triton_folder / f"level_1_problem_{number}_sample_{sample}_kernel.py").write_text(text)
            (both / f"level_1_problem_{number}_sample_{sample + 4}_kernel.py").write_text(text)
    return 6 * len(problems)
