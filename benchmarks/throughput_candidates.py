"""Sixty solutions to ten of KernelBench's problems: forty by `load_inline`, twenty in Triton, some faulty.

To level 1's problems 19 to 28, of 13 GB each, whole ones: plain and honest kernels, one element a thread or one row a
block. To others the reference's own code, whose answer a kernel writes once more, as where a model has replaced one
step. The faulty ones fail in as many ways as there are. The numbers are without a gap, because KernelBench takes them
as a range.
"""

from collections.abc import Mapping
from pathlib import Path

# (number, CUDA expression of v, Triton expression of v); the two that reduce rows have kernels of their own.
ELEMENTWISE = {
    19: ("fmaxf(v, 0.f)", "tl.maximum(v, 0.0)"),
    20: ("v > 0.f ? v : 0.01f * v", "tl.where(v > 0, v, 0.01 * v)"),
    21: ("1.f / (1.f + expf(-v))", "1 / (1 + tl.exp(-v))"),
    22: ("tanhf(v)", "2 / (1 + tl.exp(-2 * v)) - 1"),
    25: ("v / (1.f + expf(-v))", "v / (1 + tl.exp(-v))"),
    26: ("0.5f * v * (1.f + erff(v * 0.70710678f))", "0.5 * v * (1 + tl.erf(v * 0.70710678118))"),
    27: (
        "1.0507009873554805f * (v > 0.f ? v : 1.6732632423543772f * expm1f(v))",
        "1.0507009873554805 * tl.where(v > 0, v, 1.6732632423543772 * (tl.exp(v) - 1))",
    ),
    28: ("fminf(fmaxf(v / 6.f + 0.5f, 0.f), 1.f)", "tl.minimum(tl.maximum(v / 6 + 0.5, 0.0), 1.0)"),
}
ROWS = {23: "softmax", 24: "log_softmax"}
FIRST, LAST = 19, 28

_CUDA = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
{kernel}
torch::Tensor forward(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    {launch}
    return y;
}}
"""
extension = load_inline(
    "{name}", "torch::Tensor forward(torch::Tensor x);", SOURCE, functions=["forward"]{flags}
)


{model}
        {body}
'''
_WHOLE = """class ModelNew(torch.nn.Module):
    def __init__(self, *_):
        super().__init__()

    def forward(self, x):"""
_BEHIND = """class ModelNew(Model):
    def forward(self, *given):
        x = super().forward(*given).contiguous()"""
_ELEMENT_KERNEL = """__global__ void {name}(const float* x, float* y, long n) {{
    long stride = (long)gridDim.x * {threads};
    for (long i = (long)blockIdx.x * {threads} + threadIdx.x; i < n; i += stride) {{
        float v = x[i];
        y[i] = {expression};
    }}
}}"""
_ELEMENT_LAUNCH = """long n = x.numel();
    {name}<<<(int)std::min<long>((n + {threads} - 1) / {threads}, 132 * 32), {threads}>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), n);"""
_ROW_KERNEL = """__device__ float reduce(float v, float* shared, bool largest) {{
    shared[threadIdx.x] = v;
    __syncthreads();
    for (int half = {threads} / 2; half; half /= 2) {{
        if (threadIdx.x < half) {{
            float a = shared[threadIdx.x], b = shared[threadIdx.x + half];
            shared[threadIdx.x] = largest ? fmaxf(a, b) : a + b;
        }}
        __syncthreads();
    }}
    float result = shared[0];
    __syncthreads();
    return result;
}}
__global__ void {name}(const float* x, float* y, long columns) {{
    __shared__ float shared[{threads}];
    x += blockIdx.x * columns;
    y += blockIdx.x * columns;
    float most = -INFINITY, sum = 0.f;
    for (long i = threadIdx.x; i < columns; i += {threads}) most = fmaxf(most, x[i]);
    most = reduce(most, shared, true);
    for (long i = threadIdx.x; i < columns; i += {threads}) sum += expf(x[i] - most);
    sum = reduce(sum, shared, false);
    for (long i = threadIdx.x; i < columns; i += {threads}) y[i] = {expression};
}}"""
_ROW_LAUNCH = "{name}<<<x.size(0), {threads}>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));"
_ROW_EXPRESSIONS = {"softmax": "expf(x[i] - most) / sum", "log_softmax": "x[i] - most - logf(sum)"}

_TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def element_kernel(p_x, p_y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(p_x + o, mask=o < n)
    tl.store(p_y + o, {expression}, mask=o < n)


class ModelNew(torch.nn.Module):
    def __init__(self, *_):
        super().__init__()

    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        element_kernel[(triton.cdiv(n, {block}),)](x, y, n, BLOCK={block})
        return y
"""
_TRITON_ROWS = """
import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(p_x, p_y, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * COLUMNS
    o = tl.arange(0, BLOCK)
    m = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in range(0, COLUMNS, BLOCK):
        m = tl.maximum(m, tl.load(p_x + start + i + o, mask=i + o < COLUMNS, other=float("-inf")))
    most = tl.max(m, 0)
    s = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, COLUMNS, BLOCK):
        s += tl.exp(tl.load(p_x + start + i + o, mask=i + o < COLUMNS, other=float("-inf")) - most)
    total = tl.sum(s, 0)
    for i in range(0, COLUMNS, BLOCK):
        v = tl.load(p_x + start + i + o, mask=i + o < COLUMNS)
        tl.store(p_y + start + i + o, {expression}, mask=i + o < COLUMNS)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        row_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK={block})
        return y
"""
_TRITON_ROW_EXPRESSIONS = {"softmax": "tl.exp(v - most) / total", "log_softmax": "v - most - tl.log(total)"}

# One for each problem, in order: what its last CUDA sample does in place of `return extension.forward(x)`.
FAULTS = {
    "does not compile": "return extension.forward(x)",
    "wrong by a thousandth": "return extension.forward(x) * 1.001",
    "another shape": "return extension.forward(x)[:1]",
    "raises": "raise ValueError('not today')",
    "reads far beyond": "return extension.forward(x)",
    "never answers": "import time; time.sleep(1e6)",
    "ends its process": "import os; os._exit(3)",
    "changes its input": "y = extension.forward(x); x.zero_(); return y",
    "another dtype": "return extension.forward(x).half()",
    "remembers the first answer": (
        "self.__dict__.setdefault('first', extension.forward(x)); return self.__dict__['first'].clone()"
    ),
}

# The last Triton sample of the problems that leave this remainder by five: what is replaced, and by what.
TRITON_FAULTS = {
    0: ("calls what Triton does not have", "tl.load", "tl.lod"),
    1: ("defines no ModelNew", "class ModelNew", "class Model"),
}


def fault_of(number: int, sample: int) -> str:
    """What is wrong with a sample of `both`; empty for an honest one."""
    if sample == 5 and number % 5 in TRITON_FAULTS:
        return TRITON_FAULTS[number % 5][0]
    return _faults(number)[0] if sample == 3 else ""


def _faults(number: int) -> tuple[str, str]:
    """What is wrong with the problem's faulty CUDA sample, and what its forward pass does instead."""
    return list(FAULTS.items())[(number - FIRST) % len(FAULTS)]


def cuda(number: int, threads: int, flags: str, body: str, fault: str = "", reference: str = "") -> str:
    """A solution by `load_inline`; with a `reference`, one that stands behind it."""
    name = f"problem_{number}_{threads}"
    if number in ROWS and not reference:
        given = {"name": name, "threads": threads, "expression": _ROW_EXPRESSIONS[ROWS[number]]}
        kernel, launch = _ROW_KERNEL.format(**given), _ROW_LAUNCH.format(**given)
    else:
        expression = "v" if reference else ELEMENTWISE[number][0]
        given = {"name": name, "threads": threads, "expression": expression}
        kernel, launch = _ELEMENT_KERNEL.format(**given), _ELEMENT_LAUNCH.format(**given)
    if fault == "does not compile":
        kernel = kernel.replace("{", "{ undeclared = 1;", 1)
    if fault == "reads far beyond":
        launch = launch.replace("x.data_ptr<float>()", "x.data_ptr<float>() + (1L << 40)")
    if reference:
        body = body.replace("x.zero_()", "given[0].zero_()")
    model = _BEHIND if reference else _WHOLE
    return reference + _CUDA.format(kernel=kernel, launch=launch, name=name, flags=flags, model=model, body=body)


def triton(number: int, block: int, reference: str = "") -> str:
    """A solution in Triton; with a `reference`, one that stands behind it."""
    if reference:
        return reference + _TRITON.format(expression="v", block=block).replace(_WHOLE, _BEHIND)
    if number in ROWS:
        return _TRITON_ROWS.format(expression=_TRITON_ROW_EXPRESSIONS[ROWS[number]], block=block)
    return _TRITON.format(expression=ELEMENTWISE[number][1], block=block)


def write(
    cuda_folder: Path, triton_folder: Path, both: Path, level: int, problems: range, references: Mapping[int, str]
) -> int:
    """The candidates to `problems`, by KernelBench's names: four by `load_inline` and two in Triton for each, behind
    the references whose texts are given.

    KernelBench judges one kind in a run, so they lie in a folder each, and in one for us, where the Triton samples
    are 4 and 5. Returns how many there are.
    """
    for folder in (cuda_folder, triton_folder, both):
        folder.mkdir(parents=True)
    fine = "return extension.forward(x)"
    optimised = ', extra_cuda_cflags=["-O3"], extra_cflags=["-O3"]'
    for number in problems:
        fault, body = _faults(number)
        reference = references.get(number, "")
        texts = [
            cuda(number, 256, "", fine, reference=reference),
            cuda(number, 512, "", fine, reference=reference),
            cuda(number, 1024, optimised, fine, reference=reference),
            cuda(number, 128, "", body, fault, reference),
        ]
        second = triton(number, 2048, reference)
        if number % 5 in TRITON_FAULTS:
            second = second.replace(*TRITON_FAULTS[number % 5][1:], 1)
        for sample, text in enumerate(texts):
            for folder in (cuda_folder, both):
                (folder / f"level_{level}_problem_{number}_sample_{sample}_kernel.py").write_text(text)
        for sample, text in enumerate([triton(number, 1024, reference), second]):
            (triton_folder / f"level_{level}_problem_{number}_sample_{sample}_kernel.py").write_text(text)
            (both / f"level_{level}_problem_{number}_sample_{sample + 4}_kernel.py").write_text(text)
    return 6 * len(problems)
