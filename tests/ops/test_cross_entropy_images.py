"""Cross entropy of images: classes that lie apart, read where they lie."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import kernelyard.ops as ops
from kernelyard.core.operator import Backend
from kernelyard.kernels.counters import launched
from kernelyard.ops.cross_entropy.cuda_columns import plan_of
from kernelyard.ops.cross_entropy.rows import Columns, columns_of, gradient_strides


def _usable(device: torch.device) -> list[str]:
    """The kernel backends that run on this machine."""
    some = torch.zeros(1, 1, device=device), torch.zeros(1, dtype=torch.long, device=device)
    kernels = (Backend.TRITON, Backend.CUDA)
    return [
        backend.value
        for backend in kernels
        if ops.backend_module("cross_entropy", backend).refusal(*some, -100, "mean", 0.0, 0.0) is None
    ]


def _gradient(call: Callable[[torch.Tensor], torch.Tensor], image: torch.Tensor) -> torch.Tensor:
    leaf = image.detach().requires_grad_()
    return torch.autograd.grad(call(leaf), leaf)[0]


def test_classes_that_lie_apart_are_read_where_they_lie() -> None:
    image = torch.empty(2, 19, 5, 8).movedim(1, -1)
    assert columns_of(image.shape, image.stride()) == Columns(2, 19, 40)
    assert gradient_strides(image.shape, image.stride()) == image.stride()
    assert columns_of((40, 5), (1, 40)) == Columns(1, 5, 40)
    assert columns_of((3, 1, 8, 5), (40, 40, 1, 8)) == Columns(3, 5, 8), "a dim of one may have any stride"
    for other in (
        image.contiguous(),
        image[:, :, :7],  # gaps between lines
        image[..., :18],  # gaps between images
        torch.empty(1, 19, 5, 8).expand(2, -1, -1, -1).movedim(1, -1),
        torch.empty(2, 19, 5, 8).transpose(2, 3).movedim(1, -1),
        torch.empty(2, 1, 5, 8).movedim(1, -1),
    ):
        assert columns_of(other.shape, other.stride()) is None
        assert gradient_strides(other.shape, other.stride()) == torch.empty(other.shape, device="meta").stride()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    "view", [(48, 19, 1 << 18), (2, 7, 40), (3, 1000, 49), (4, 151, 1023), (2, 5000, 40), (1, 2, 2)]
)
def test_a_plan_holds_every_class_of_every_pixel(view: tuple[int, int, int], size: int) -> None:
    plan = plan_of(Columns(*view), size, 0)
    assert plan.items * plan.along * plan.tiles * plan.chunks >= view[1]
    assert not view[2] % plan.vec, "or a vector would lie in two rows"
    assert not plan.block % 32 and plan.block <= 512 and not 32 % plan.across


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_an_images_gradient_lies_as_the_image_does(reduction: str, device: torch.device) -> None:
    """torch's does, and who calls `.view()` on it relies on that; with gaps it is copied, and right too."""
    image, target = torch.randn(2, 7, 5, 8, device=device), torch.randint(7, (2, 5, 8), device=device)
    for backend in _usable(device):
        for height, width in ((5, 8), (4, 8), (5, 6)):
            before = launched(f"cross_entropy_{backend}.columns")
            logits, aims = image[:, :, :height, :width], target[:, :height, :width]
            found = []
            for call in (partial(ops.cross_entropy, backend=backend), F.cross_entropy):
                leaf = logits.detach().requires_grad_()
                loss = call(leaf, aims, reduction=reduction)
                upstream = torch.linspace(0.5, 2.0, loss.numel(), device=device).view(loss.shape)
                found.append((loss, *torch.autograd.grad(loss, leaf, upstream)))
            for mine, torchs in zip(*found, strict=True):
                torch.testing.assert_close(mine, torchs)
            whole = logits.is_contiguous()
            assert not whole or found[0][1].is_contiguous()
            assert (launched(f"cross_entropy_{backend}.columns") > before) == whole


@pytest.mark.parametrize("mask", [-1e9, torch.finfo(torch.float32).min])
def test_a_class_masked_by_a_large_number_takes_nothing_from_the_others(mask: float, device: torch.device) -> None:
    image, target = torch.randn(2, 19, 5, 8, device=device), torch.randint(1, 19, (2, 5, 8), device=device)
    image[:, 0] = mask
    expected = F.cross_entropy(image.double(), target, label_smoothing=0.1)
    for backend in _usable(device):
        for logits in (image.movedim(1, -1), image.movedim(1, -1).contiguous()):
            got = ops.backend_module("cross_entropy", backend).cross_entropy(logits, target, -100, "mean", 0.1, 0.0)
            torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=0)


def test_a_saved_gradient_that_comes_back_otherwise_is_not_written_over(device: torch.device) -> None:
    image, target = torch.randn(2, 7, 5, 8, device=device), torch.randint(7, (2, 5, 8), device=device)
    expected = _gradient(lambda x: 2 * F.cross_entropy(x, target), image)
    for backend in _usable(device):

        def unpack(saved: torch.Tensor) -> torch.Tensor:
            return saved if saved.requires_grad else saved.contiguous()

        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, unpack):
            got = _gradient(lambda x, backend=backend: 2 * ops.cross_entropy(x, target, backend=backend), image)
        torch.testing.assert_close(got, expected)


def test_an_image_of_unknown_batch_compiles(device: torch.device) -> None:
    image, target = torch.randn(4, 7, 5, 8, device=device), torch.randint(7, (4, 5, 8), device=device)
    keep = torch.tensor([True, False, True, True], device=device)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return ops.cross_entropy(x[keep], target[keep], backend="triton")

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        got = _gradient(torch.compile(loss, fullgraph=True, backend="aot_eager"), image)
    torch.testing.assert_close(got, _gradient(lambda x: F.cross_entropy(x[keep], target[keep]), image))


@pytest.mark.gpu
def test_an_image_is_not_copied(device: torch.device) -> None:
    logits = torch.randn(8, 19, 512, 512, device=device)
    target = torch.randint(19, (8, 512, 512), device=device)
    for backend in ("triton", "cuda"):
        ops.cross_entropy(logits, target, backend=backend)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        ops.cross_entropy(logits, target, backend=backend)
        # A row's number at most, of which there are a nineteenth as many as logits.
        assert torch.cuda.max_memory_allocated() - before <= logits.numel() * 4 / 18
