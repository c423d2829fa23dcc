"""Operations, each with the honest ways in which a kernel may compute it: other orders, online, fused, blocked."""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernelyard.core.problem import Problem, Source

Call = Callable[..., Tensor]


def problem(call: Call, inputs: Callable[[], list[Tensor]], **declared: object) -> Problem:
    """A problem without weights around a function."""

    class Model(nn.Module):
        def forward(self, *arguments: Tensor) -> Tensor:
            return call(*arguments)

    return Problem(Source(Path("made_up.py"), ""), Model, inputs, list, **declared)  # type: ignore[arg-type]


def online_softmax(x: Tensor) -> Tensor:
    """Blocks of 128 with a running maximum and a rescaled running sum, exp as exp2 of a scaled difference."""
    log2e = 1.4426950408889634
    top = torch.full_like(x[..., :1], float("-inf"))
    total = torch.zeros_like(top)
    for block in x.split(128, -1):
        new = torch.maximum(top, block.amax(-1, keepdim=True))
        total = total * torch.exp2((top - new) * log2e) + torch.exp2((block - new) * log2e).sum(-1, keepdim=True)
        top = new
    return torch.exp2((x - top) * log2e) * (1 / total)


def single_pass_norm(x: Tensor) -> Tensor:
    """The variance as the mean of squares less the square of the mean."""
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def welford_norm(x: Tensor) -> Tensor:
    """Blocks of 64, their means and sums of squares merged one after another."""
    count, mean, squares = 0, torch.zeros_like(x[..., :1]), torch.zeros_like(x[..., :1])
    for block in x.split(64, -1):
        size = block.shape[-1]
        own = block.mean(-1, keepdim=True)
        delta = own - mean
        squares = squares + ((block - own) ** 2).sum(-1, keepdim=True) + delta**2 * count * size / (count + size)
        count += size
        mean = mean + delta * size / count
    return (x - mean) / torch.sqrt(squares / count + 1e-5)


def split_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Partial products over eighths of the inner extent, added from the last to the first."""
    parts = [p @ q for p, q in zip(a.chunk(8, -1), b.chunk(8, -2), strict=True)]
    total = parts.pop()
    while parts:
        total = total + parts.pop()
    return total


def blocked_cumsum(x: Tensor) -> Tensor:
    """Scans of 64 and a scan of their totals, in fp32 throughout."""
    blocks = x.unflatten(-1, (-1, 64))
    own = blocks
    step = 1
    while step < 64:
        own = torch.cat([own[..., :step], own[..., step:] + own[..., :-step]], -1)
        step *= 2
    totals = own[..., -1:]
    carried = torch.zeros_like(totals)
    for i in range(1, carried.shape[-2]):
        carried[..., i, :] = carried[..., i - 1, :] + totals[..., i - 1, :]
    return (own + carried).flatten(-2)


def strided_sum(x: Tensor) -> Tensor:
    """What 128 threads add up one after another, then a tree over them."""
    parts = x.unflatten(-1, (-1, 128))
    total = parts[..., 0, :].clone()
    for i in range(1, parts.shape[-2]):
        total += parts[..., i, :]
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = total[..., :half] + total[..., half:]
    return total.squeeze(-1)


def tanh_by_sigmoid(x: Tensor) -> Tensor:
    return 2 / (1 + torch.exp(-2 * x)) - 1


def gelu_fused(x: Tensor) -> Tensor:
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x / (1 + torch.exp(-2 * u))


def unfolded_conv(x: Tensor, w: Tensor) -> Tensor:
    columns = F.unfold(x, w.shape[-2:])
    out = split_matmul(w.flatten(1), columns)
    return out.unflatten(-1, (x.shape[-2] - w.shape[-2] + 1, -1))


def attention_online(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = split_matmul(q, k.mT) * q.shape[-1] ** -0.5
    top = scores.amax(-1, keepdim=True)
    weight = torch.exp(scores - top)
    return split_matmul(weight, v) / weight.sum(-1, keepdim=True)


def rows(*shape: int) -> Callable[[], list[Tensor]]:
    return lambda: [torch.randn(*shape)]


def positive(*shape: int) -> Callable[[], list[Tensor]]:
    return lambda: [torch.rand(*shape)]


CASES: dict[str, tuple[Call, Callable[[], list[Tensor]], list[Call]]] = {
    "softmax": (lambda x: x.softmax(-1), rows(16, 1024), [online_softmax]),
    "log_softmax": (
        lambda x: x.log_softmax(-1),
        rows(16, 1024),
        [lambda x: x - x.amax(-1, True) - (x - x.amax(-1, True)).exp().sum(-1, True).log()],
    ),
    "logsumexp": (
        lambda x: x.logsumexp(-1),
        rows(64, 1024),
        [lambda x: x.amax(-1) + (x - x.amax(-1, True)).exp().flip(-1).sum(-1).log()],
    ),
    "layer_norm": (
        lambda x: F.layer_norm(x, x.shape[-1:]),
        rows(32, 768),
        [single_pass_norm, welford_norm],
    ),
    "layer_norm of positives": (
        lambda x: F.layer_norm(x, x.shape[-1:]),
        positive(32, 768),
        [single_pass_norm, welford_norm],
    ),
    "rms_norm": (
        lambda x: x * torch.rsqrt((x * x).mean(-1, True) + 1e-5),
        rows(32, 768),
        [lambda x: x / torch.sqrt(strided_sum(x * x)[..., None] / x.shape[-1] + 1e-5)],
    ),
    "variance": (
        lambda x: x.var(-1),
        positive(64, 1024),
        [lambda x: strided_sum((x - strided_sum(x)[:, None] / 1024) ** 2) * (1 / 1023)],
    ),
    "mean": (lambda x: x.mean(-1), positive(64, 1024), [lambda x: strided_sum(x) * (1 / 1024)]),
    "sum": (lambda x: x.sum(-1), rows(64, 4096), [strided_sum, lambda x: x.flip(-1).sum(-1)]),
    "loss": (
        lambda x, y: F.mse_loss(x, y),
        lambda: [torch.rand(64, 1000), torch.rand(64, 1000)],
        [lambda x, y: ((x - y) ** 2).sum(0).sum() * (1 / 64000)],
    ),
    "matmul": (
        torch.matmul,
        lambda: [torch.rand(64, 512), torch.rand(512, 64)],
        [split_matmul, lambda a, b: (b.mT @ a.mT).mT.contiguous()],
    ),
    "matmul of normals": (torch.matmul, lambda: [torch.randn(64, 512), torch.randn(512, 64)], [split_matmul]),
    "triangles": (
        lambda a, b: torch.tril(a @ b),
        lambda: [torch.tril(torch.rand(64, 64)), torch.tril(torch.rand(64, 64))],
        # Reads nothing above the diagonals: what the inputs promise, a stress keeps.
        [lambda a, b: torch.tril(torch.tril(a) @ torch.tril(b))],
    ),
    "symmetric": (
        lambda a, b: a @ b,
        lambda: [(m + m.T) / 2 for m in (torch.rand(64, 64), torch.rand(64, 64))],
        [lambda a, b: (a.triu() + a.triu(1).T) @ (b.triu() + b.triu(1).T)],
    ),
    "relu": (torch.relu, positive(64, 512), [lambda x: 0.5 * (x + x.abs())]),
    "gelu": (lambda x: F.gelu(x, approximate="tanh"), rows(64, 512), [gelu_fused]),
    "tanh": (torch.tanh, rows(64, 512), [tanh_by_sigmoid]),
    "sigmoid": (torch.sigmoid, rows(64, 512), [lambda x: 1 / (1 + torch.exp2(-1.4426950408889634 * x))]),
    "elu": (F.elu, rows(64, 512), [lambda x: torch.where(x > 0, x, torch.exp(x) - 1)]),
    "swish": (F.silu, rows(64, 512), [lambda x: x / (1 + torch.exp(-x))]),
    "cumsum": (lambda x: x.cumsum(-1), positive(16, 2048), [blocked_cumsum]),
    "conv": (F.conv2d, lambda: [torch.rand(4, 8, 16, 16), torch.randn(16, 8, 3, 3)], [unfolded_conv]),
    "attention": (
        F.scaled_dot_product_attention,
        lambda: [torch.rand(2, 4, 64, 32) for _ in range(3)],
        [attention_online],
    ),
    "max pool": (
        lambda x: F.max_pool2d(x, 2),
        rows(4, 8, 16, 16),
        [lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2))],
    ),
    "l2 norm": (lambda x: F.normalize(x), positive(32, 512), [lambda x: x * torch.rsqrt(strided_sum(x * x))[:, None]]),
    "cosine": (
        lambda x, y: 1 - F.cosine_similarity(x, y),
        lambda: [torch.rand(32, 512), torch.rand(32, 512)],
        [lambda x, y: 1 - strided_sum(x * y) / (strided_sum(x * x).sqrt() * strided_sum(y * y).sqrt())],
    ),
}
