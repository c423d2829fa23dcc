"""What cross entropy promises beyond the numbers that the contract test checks."""

from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import kernelyard.ops as ops
from kernelyard import nn
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.core.workload import Mode, Workload
from kernelyard.kernels.counters import launched
from kernelyard.kernels.prepared import Prepared
from kernelyard.ops.cross_entropy import triton_settings
from kernelyard.ops.cross_entropy.reference import cross_entropy as reference
from kernelyard.ops.cross_entropy.rows import Rows, rows_of

DEFINITION = ops.definition("cross_entropy")
PLAIN = (-100, "mean", 0.0, 0.0)


def _usable(device: torch.device) -> list[ModuleType]:
    """The kernel backends that run on this machine."""
    some = torch.zeros(1, 1, device=device), torch.zeros(1, dtype=torch.long, device=device)
    modules = [ops.backend_module("cross_entropy", backend) for backend in (Backend.TRITON, Backend.CUDA)]
    return [module for module in modules if module.refusal(*some, *PLAIN) is None]


def _written(device: torch.device) -> list[ModuleType]:
    """The backends that are not torch's own cross entropy."""
    return [ops.backend_module("cross_entropy", Backend.TORCHSCRIPT), *_usable(device)]


def _inputs(rows: int, classes: int, device: torch.device, **options: Any) -> list[Any]:
    workload = Workload.of(rows, classes, **options)
    return list(DEFINITION.make_inputs(workload, device).values())


def _gradient(call: Any, input: torch.Tensor, *others: Any, grad: torch.Tensor | None = None) -> torch.Tensor:
    input = input.detach().requires_grad_()
    loss = call(input, *others)
    return torch.autograd.grad(loss, input, torch.ones_like(loss) if grad is None else grad)[0]


@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 7, 3), (2, 7, 3, 4)])
def test_shapes_are_torchs(shape: tuple[int, ...], device: torch.device) -> None:
    input = torch.randn(shape, device=device)
    target = torch.randint(7, shape[:1] + shape[2:] if len(shape) > 1 else (), device=device)
    for backend in (None, Backend.TRITON):
        for reduction in ("none", "mean", "sum"):
            got = ops.cross_entropy(input, target, reduction=reduction, label_smoothing=0.1, backend=backend)
            expected = F.cross_entropy(input, target, reduction=reduction, label_smoothing=0.1)
            torch.testing.assert_close(got, expected)
        wide = input.double().requires_grad_()
        exact = torch.autograd.grad(F.cross_entropy(wide, target), wide)[0]
        mine = input.clone().requires_grad_()
        got = torch.autograd.grad(ops.cross_entropy(mine, target, backend=backend), mine)[0]
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_an_ignored_row_counts_for_nothing_whatever_it_holds(reduction: str, device: torch.device) -> None:
    logits = torch.randn(3, 7, device=device)
    logits[1] = -float("inf")
    target = torch.tensor([2, -100, 5], device=device)
    options = (-100, reduction, 0.1, 0.1)
    exact = _gradient(reference, logits.double(), target, *options)
    assert exact.isfinite().all() and not exact[1].any()
    for module in (*_written(device), ops.backend_module("cross_entropy", Backend.EAGER)):
        loss = module.cross_entropy(logits, target, *options)
        torch.testing.assert_close(loss.double(), reference(logits.double(), target, *options), rtol=1e-5, atol=1e-6)
        got = _gradient(module.cross_entropy, logits, target, *options)
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_z_loss_is_squared_in_float32(dtype: torch.dtype, device: torch.device) -> None:
    """fp16 ends at 65504: the square of 256."""
    logits = (torch.randn(4, 7, device=device) + 300).to(dtype)
    target = torch.arange(4, device=device)
    for module in (*_written(device), ops.backend_module("cross_entropy", Backend.EAGER)):
        loss = module.cross_entropy(logits, target, -100, "mean", 0.0, 1e-4)
        assert loss.dtype is dtype
        exact = reference(logits.double(), target, -100, "mean", 0.0, 1e-4)
        torch.testing.assert_close(loss.double(), exact, rtol=torch.finfo(dtype).eps, atol=0)


def test_what_is_prepared_for_a_loss_alone_runs_for_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launched on no GPU. Of more dims the table holds the classes moved to the end, which may look like these."""
    package = import_module("kernelyard.ops.cross_entropy")
    logits, target = torch.randn(2, 4, 4), torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
    monkeypatch.setattr(package, "prepared", table := Prepared())
    table[package.layout(logits, target, *PLAIN)] = lambda *_: pytest.fail("the classes are taken to be last")
    torch.testing.assert_close(ops.cross_entropy(logits, target), F.cross_entropy(logits, target))
    rows, classes = logits[0], target[0]
    table[package.layout(rows, classes, *PLAIN)] = lambda *_: (torch.tensor(100.0), None, None)
    assert ops.cross_entropy(rows, classes) == 100
    for other, options in (
        (classes.int(), {}),
        (classes, {"reduction": "sum"}),
        (classes, {"ignore_index": 0}),
        (classes, {"label_smoothing": 0.1}),
        (classes, {"z_loss": 0.1}),
        (classes, {"backend": "eager"}),
    ):
        assert (ops.cross_entropy(rows, other, **options) != 100).all()
    leaf = rows.clone().requires_grad_()
    assert ops.cross_entropy(leaf, classes).requires_grad
    with pytest.raises(ValueError, match="do not go with targets"):
        ops.cross_entropy(rows, classes[:3])


def test_what_cuda_prepares_for_a_loss_alone_is_what_the_public_call_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's own in place of the launches, as there is no GPU here."""
    package, cuda = import_module("kernelyard.ops.cross_entropy"), ops.backend_module("cross_entropy", Backend.CUDA)
    prepared = []

    def prepare(call: Any, targets: torch.Size, keep: bool, gradient: bool) -> Any:
        prepared.append((targets, keep, gradient))
        return lambda input, target: (F.cross_entropy(input, target, reduction=call.reduction), None, None)

    table = Prepared()
    for module in (package, cuda):
        monkeypatch.setattr(module, "prepared", table)
    monkeypatch.setattr(cuda, "_prepare_forward", prepare)
    logits, target = torch.randn(3, 5), torch.tensor([0, 1, 2])
    exact = F.cross_entropy(logits, target)
    cuda._forward(logits, target, *PLAIN, keep=True, gradient=True)
    assert torch.equal(cuda.cross_entropy(logits, target, *PLAIN), exact)
    monkeypatch.setattr(package, "implementation", lambda *_: pytest.fail("the call was not found"))
    assert torch.equal(ops.cross_entropy(logits, target), exact)
    assert prepared == [((3,), True, True), ((3,), False, False)]


def test_a_language_models_logits_are_read_where_they_lie() -> None:
    logits = torch.empty(3, 9, 40)
    shifted = logits[:, :-1].transpose(1, 2).movedim(1, -1)
    assert rows_of(shifted.shape, shifted.stride()) == Rows(24, 40, 40, 8, 360, False)
    assert rows_of(logits.shape, logits.stride()) == Rows(27, 40, 40, 27, 0, False)
    padded = torch.empty(6, 48)[:, :40]
    assert rows_of(padded.shape, padded.stride()) == Rows(6, 40, 48, 6, 0, False)
    assert rows_of((5, 40), (0, 1)) == Rows(5, 40, 0, 5, 0, False)
    assert rows_of((40, 5), (1, 40)).copied


def test_what_cannot_be_is_said(device: torch.device) -> None:
    logits, target = torch.randn(3, 5, device=device), torch.tensor([0, 1, 2], device=device)
    with pytest.raises(UsageError, match="not class probabilities"):
        ops.cross_entropy(logits, torch.rand(3, 5, device=device))
    for wrong in (target > 0, target.to(torch.complex64)):
        with pytest.raises(UsageError, match=f"of an integer dtype as targets, not {str(wrong.dtype)[6:]}"):
            ops.cross_entropy(logits, wrong)
    with pytest.raises(TypeError, match="takes 2 positional arguments"):
        ops.cross_entropy(logits, target, torch.ones(5, device=device))  # torch's third is the class weights
    with pytest.raises(ValueError, match=r"logits of \(3, 5\) do not go with targets of \(2,\)"):
        ops.cross_entropy(logits, target[:2])
    with pytest.raises(ValueError, match="one of none, mean, sum"):
        ops.cross_entropy(logits, target, reduction="average")
    with pytest.raises(ValueError, match="between 0 and 1"):
        ops.cross_entropy(logits, target, label_smoothing=1.5)
    with pytest.raises(ValueError, match="at least one class"):
        ops.cross_entropy(logits[:, :0], target)
    with pytest.raises(UsageError, match="targets of int64 and int32, not int16"):
        ops.cross_entropy(logits, target.short(), backend="torchscript")
    with pytest.raises(UsageError, match="no class weights"):
        nn.CrossEntropyLoss(weight=torch.ones(5))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8, torch.uint16])
def test_a_target_of_any_integer_dtype_is_taken_where_torchs_own_runs(dtype: torch.dtype) -> None:
    logits, target = torch.randn(3, 5), torch.tensor([0, 1, 4])
    assert torch.equal(ops.cross_entropy(logits, target.to(dtype)), F.cross_entropy(logits, target))


def test_the_module_is_torchs(device: torch.device) -> None:
    logits, target = torch.randn(6, 5, device=device), torch.tensor([0, 1, 2, 3, 4, 0], device=device)
    ours = nn.CrossEntropyLoss(ignore_index=2, reduction="sum", label_smoothing=0.2)
    theirs = torch.nn.CrossEntropyLoss(ignore_index=2, reduction="sum", label_smoothing=0.2)
    torch.testing.assert_close(ours(logits, target), theirs(logits, target))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    expected = theirs(logits, target) + 0.1 * logits[target != 2].logsumexp(1).square().sum()
    torch.testing.assert_close(nn.CrossEntropyLoss(None, None, 2, None, "sum", 0.2, 0.1)(logits, target), expected)


def test_a_target_that_is_no_class_makes_its_row_nan_and_no_other(device: torch.device) -> None:
    logits = torch.randn(6, 33, device=device)
    target = torch.tensor([0, 33, -1, 2**40, -100, 32], device=device)
    known = torch.tensor([True, False, False, False, True, True], device=device)
    for module in _written(device):
        losses = module.cross_entropy(logits, target, -100, "none", 0.1, 0.0)
        assert torch.equal(losses.isnan(), ~known), module.__name__
        for reduction in ("none", "sum"):
            dx = _gradient(module.cross_entropy, logits, target, -100, reduction, 0.0, 0.0)
            assert torch.equal(dx.isnan(), ~known[:, None].expand_as(dx)), module.__name__
            assert not dx[4].any()
        assert module.cross_entropy(logits, target, -100, "mean", 0.0, 0.0).isnan()


def test_a_mean_of_nothing_is_nan_with_no_gradient(device: torch.device) -> None:
    logits, target = torch.randn(3, 9, device=device), torch.full((3,), -100, device=device)
    for module in _written(device):
        assert module.cross_entropy(logits, target, *PLAIN).isnan()
        assert not _gradient(module.cross_entropy, logits, target, *PLAIN).any(), module.__name__


def test_infinite_logits_do_as_in_torch(device: torch.device) -> None:
    logits = torch.randn(6, 50, device=device)
    logits[0, 3:] = float("-inf")
    logits[1] = float("-inf")
    logits[2, 7] = float("inf")
    logits[3, 5] = float("-inf")
    logits[4, 5] = float("nan")
    target = torch.tensor([1, 1, 7, 5, 2, 3], device=device)
    for module in _written(device):
        for smoothing in (0.0, 0.1):
            expected = F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing)
            got = module.cross_entropy(logits, target, -100, "none", smoothing, 0.0)
            torch.testing.assert_close(got, expected, equal_nan=True)
            for reduction in ("none", "sum"):
                dx = _gradient(module.cross_entropy, logits, target, -100, reduction, smoothing, 0.0)
                exact = _gradient(
                    lambda *a: F.cross_entropy(*a, reduction="none", label_smoothing=smoothing),  # noqa: B023
                    logits,
                    target,
                )
                torch.testing.assert_close(dx, exact, equal_nan=True)


@pytest.mark.parametrize("peak", [3.3e38, 1e30, 1e12, 1e10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_at_the_ends_of_the_range_do_not_overflow(dtype: torch.dtype, peak: float, device: torch.device) -> None:
    """3.3e38 times log2(e) is more than a float holds, and the rounding of 1e10 times it is more than an exponent."""
    logits = torch.zeros(4, 4096, device=device, dtype=dtype)
    logits[0, 7] = logits[1, 7:9] = peak
    logits[2] = -peak
    logits[3] = peak
    target = torch.tensor([7, 8, 3, 4095], device=device)
    exact = F.cross_entropy(logits.double(), target, reduction="none").to(dtype)
    for module in _usable(device):
        torch.testing.assert_close(module.cross_entropy(logits, target, -100, "none", 0.0, 0.0), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_two_passes_with_different_upstream_gradients_are_both_right(dtype: torch.dtype, device: torch.device) -> None:
    """And what a pass handed out is nobody else's: it may be changed."""
    logits, target, *_ = _inputs(9, 70, device, dtype=str(dtype).removeprefix("torch."), ignored=0.3)
    options = (-100, "mean", 0.1, 1e-3)
    exact = _gradient(reference, logits.double(), target, *options)
    rounding = torch.finfo(dtype).eps
    for module in _usable(device):
        input = logits.clone().requires_grad_()
        loss = module.cross_entropy(input, target, *options)
        for upstream in (1.0, 1.0, -0.75, 1.0, 3.0):
            grad = torch.full_like(loss, upstream)
            (dx,) = torch.autograd.grad(loss, input, grad, retain_graph=True)
            torch.testing.assert_close(dx.double(), upstream * exact, rtol=rounding, atol=1e-7)
            dx.zero_()
        for upstream in (1.0, -0.75):
            again = module.cross_entropy(input, target, *options)
            (dx,) = torch.autograd.grad(again, input, torch.full_like(loss, upstream))
            torch.testing.assert_close(dx.double(), upstream * exact, rtol=rounding, atol=1e-7)
        assert torch.equal(input, logits)


def test_a_scaled_loss_keeps_what_fp16_would_flush(device: torch.device) -> None:
    """The gradient for 1 is below fp16's smallest number; for 65536, a usual loss scale, it is not."""
    logits = torch.zeros(4096, 8, device=device, dtype=torch.float16)
    logits[:, 0] = 12
    target = torch.zeros(4096, dtype=torch.long, device=device)
    for module in _usable(device):
        grad = torch.tensor(65504.0, device=device, dtype=torch.float16)
        dx = _gradient(module.cross_entropy, logits, target, *PLAIN, grad=grad)
        exact = _gradient(reference, logits.double(), target, *PLAIN, grad=grad.double())
        assert exact[0, 1] > 0
        torch.testing.assert_close(dx[:, 1:].double(), exact[:, 1:], rtol=1e-3, atol=0)


def test_the_targets_element_is_rounded_once(device: torch.device) -> None:
    """p - 1 of a p near 1: rounded to bf16 first, p would be 1 and the gradient 0."""
    logits = torch.zeros(1, 4, device=device, dtype=torch.bfloat16)
    logits[0, 2] = 9
    target = torch.tensor([2], device=device)
    exact = _gradient(reference, logits.double(), target, *PLAIN)
    for module in _usable(device):
        dx = _gradient(module.cross_entropy, logits, target, *PLAIN)
        torch.testing.assert_close(dx.double(), exact, rtol=2**-8, atol=0)


def test_backward_hands_out_what_forward_made_once(device: torch.device) -> None:
    """No second tensor of the logits' size, and none kept, where the graph is walked once."""
    for module in _usable(device):
        input = torch.randn(6, 40, device=device, requires_grad=True)
        loss = module.cross_entropy(input, torch.zeros(6, dtype=torch.long, device=device), *PLAIN)
        made = loss.grad_fn.saved_tensors[-1].data_ptr()
        node = loss.grad_fn
        loss.backward()
        assert input.grad is not None and input.grad.data_ptr() == made
        with pytest.raises(RuntimeError, match="already been freed"):
            node.saved_tensors  # noqa: B018


def test_launches_are_counted(device: torch.device) -> None:
    for module in _usable(device):
        name = module.__name__.rpartition(".")[2]
        before = launched(f"cross_entropy_{name}.")
        module.cross_entropy(*_inputs(2, 8, device, reduction="none"))
        assert launched(f"cross_entropy_{name}.") == before + 1


def test_every_triton_kernel_is_right(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """With small settings, so that loops run at sizes the interpreter takes."""
    module = ops.backend_module("cross_entropy", "triton")
    small = triton_settings.Settings(
        row_elements=64,
        read_elements=64,
        loop_block=64,
        loop_warps=1,
        read_warps=1,
        gradient_block=64,
        looks=2,
        total_block=16,
        totals=2,
    )
    monkeypatch.setattr(triton_settings, "SETTINGS", small)
    monkeypatch.setattr(module, "SETTINGS", small)
    for reduction in ("mean", "sum", "none"):
        options = (-100, reduction, 0.1, 1e-3)
        input, target, *_ = _inputs(40, 201, device, ignored=0.2, shift=100)
        before = launched("cross_entropy_triton.long_forward")
        exact = reference(input.double(), target, *options)
        torch.testing.assert_close(module.cross_entropy(input, target, *options).double(), exact, rtol=1e-6, atol=1e-6)
        assert launched("cross_entropy_triton.long_forward") > before
        for grad in (torch.ones_like(exact), torch.randn_like(exact)):
            got = _gradient(module.cross_entropy, input, target, *options, grad=grad.float())
            expected = _gradient(reference, input.double(), target, *options, grad=grad)
            torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-7)


def test_cost_counts_each_byte_once() -> None:
    workload = Workload.of(8, 100, dtype="bfloat16")
    assert DEFINITION.cost(workload, Mode.FORWARD).bytes == 8 * 100 * 2 + 8 * 8 + 2
    assert DEFINITION.cost(workload, Mode.FULL).bytes == 2 * 8 * 100 * 2 + 8 * 8 + 2
    assert DEFINITION.cost(workload, Mode.BACKWARD).bytes == 2 * 8 * 100 * 2 + 8 * 8


def test_a_backends_arguments_are_the_public_functions() -> None:
    for workload in (Workload.of(3, 5), Workload.of(7), Workload.of(2, 3, 4, 5, reduction="none", z_loss=0.1)):
        inputs = list(DEFINITION.make_inputs(workload, torch.device("cpu")).values())
        positional, named = DEFINITION.public_arguments(*inputs)
        eager = ops.cross_entropy(*positional, **named, backend="eager")
        assert torch.equal(ops.cross_entropy(*positional, **named), eager)
        torch.testing.assert_close(ops.cross_entropy(*positional, **named), reference(*inputs))


def test_a_shape_that_cannot_be_is_one_line() -> None:
    with pytest.raises(UsageError, match="ends in the classes, not 3x0"):
        DEFINITION.workload_of((3, 0), "float32")


@pytest.mark.gpu
def test_a_cuda_graph_replays_every_kernel(device: torch.device) -> None:
    for module in _usable(device):
        for rows, classes in ((64, 1000), (4, 65536), (2, 2**21)):
            for smoothing, reduction in ((0.0, "mean"), (0.1, "none")):
                input, target, *_ = _inputs(rows, classes, device, dtype="bfloat16")
                options = (-100, reduction, smoothing, 0.0)
                _step(module, input, target, *options)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    captured = _step(module, input, target, *options)
                input.normal_()
                target.fill_(-100)[0] = 3
                graph.replay()
                for left, right in zip(captured, _step(module, input, target, *options), strict=True):
                    assert torch.equal(left, right)


def _step(module: ModuleType, input: torch.Tensor, *others: Any) -> tuple[torch.Tensor, ...]:
    """Loss without a gradient, the gradient for 1, and for another."""
    loss = module.cross_entropy(input, *others)
    two = torch.full_like(loss, 2)
    return (
        loss,
        _gradient(module.cross_entropy, input, *others),
        _gradient(module.cross_entropy, input, *others, grad=two),
    )


@pytest.mark.gpu
@pytest.mark.slow
def test_more_than_two_to_the_31_elements(device: torch.device) -> None:
    classes = 32768
    input = torch.randn(2**16 + 9, classes, device=device, dtype=torch.bfloat16)
    target = torch.randint(classes, (len(input),), device=device)
    for module in _usable(device):
        dx = _gradient(module.cross_entropy, input, target, -100, "sum", 0.0, 0.0)
        losses = module.cross_entropy(input, target, -100, "none", 0.0, 0.0)
        for row in (0, 2**15, 2**16 + 8):
            rows, targets = input[row : row + 1].float(), target[row : row + 1]
            torch.testing.assert_close(losses[row].float(), F.cross_entropy(rows, targets), rtol=1e-2, atol=0)
            exact = _gradient(F.cross_entropy, rows, targets)[0]
            torch.testing.assert_close(dx[row].float(), exact, rtol=1e-2, atol=0)
        del dx, losses


@pytest.mark.gpu
def test_a_gpu_call_runs_the_cuda_kernel(device: torch.device) -> None:
    before = launched("cross_entropy_cuda.")
    target = torch.zeros(4, dtype=torch.long, device=device)
    ops.cross_entropy(torch.randn(4, 100, device=device), target)
    assert launched("cross_entropy_cuda.") == before + 1
    input = torch.randn(4, 100, device=device, requires_grad=True)
    ops.cross_entropy(input, target).backward()
    assert launched("cross_entropy_cuda.") == before + 1 + 4


def test_a_checkpointed_head_holds_no_gradient(device: torch.device) -> None:
    """Heads are checkpointed in chunks so that what is as large as the logits is there for one chunk alone."""
    target = torch.randint(50, (6,), device=device)
    hidden, head = (torch.randn(rows, 8, device=device, requires_grad=True) for rows in (6, 50))

    def logits_saved(module: ModuleType, *, checkpointed: bool) -> tuple[int, tuple[torch.Tensor, ...]]:
        def loss_of(h: torch.Tensor, w: torch.Tensor) -> Any:
            return module.cross_entropy(h @ w.t(), target, *PLAIN)

        shapes: list[torch.Size] = []

        def pack(x: torch.Tensor) -> torch.Tensor:
            shapes.append(x.shape)
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            loss = checkpoint(loss_of, hidden, head, use_reentrant=False) if checkpointed else loss_of(hidden, head)
        return shapes.count(torch.Size((6, 50))), torch.autograd.grad(loss, (hidden, head))

    for module in _usable(device):
        count, plain = logits_saved(module, checkpointed=False)
        assert count == 2, "the logits and their gradient, for whoever wants to move them"
        count, again = logits_saved(module, checkpointed=True)
        assert count == 0 and all(map(torch.equal, plain, again))


def test_eager_counts_more_rows_than_float16_does() -> None:
    """torch's own mean over them has a gradient of zero, beside which any passes."""
    logits = torch.randn(65_600, 3, dtype=torch.float16)
    target = torch.randint(3, (65_600,))
    losses = []
    for dtype in (torch.float64, torch.float16):
        leaf = logits.to(dtype).requires_grad_()
        loss = ops.cross_entropy(leaf, target, backend="eager")
        loss.backward()
        losses.append((loss.double(), leaf.grad.double()))  # type: ignore[union-attr]
    (right, gradient), (loss, own) = losses
    assert abs(loss - right) < 1e-3 * right
    # Half of the least that float16 holds, and what float32 was off by before it was rounded: some ulps.
    assert (own - gradient).abs().max() <= 2**-25 + 2**-21 * gradient.abs().max()
