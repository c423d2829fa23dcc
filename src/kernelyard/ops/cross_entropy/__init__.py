"""Cross entropy over classes, in every backend of the ladder."""

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend
from kernelyard.core.workload import dtype_name
from kernelyard.kernels.prepared import Layout, Prepared, inference
from kernelyard.ops.arguments import check_integer, check_number, check_string, check_tensors
from kernelyard.ops.dispatch import implementation

_REDUCTIONS = ("none", "mean", "sum")
_SIGNED = {torch.int8, torch.int16, torch.int32, torch.int64}
_INTEGERS = _SIGNED | {torch.uint8, torch.uint16, torch.uint32, torch.uint64}

prepared = Prepared()


def layout(
    input: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    z_loss: float,
) -> Layout:
    """All that decides whether a call with its classes in the last dim is right, and how the CUDA backend computes it.

    A target's address is not: it is read an index at a time.
    """
    return (
        *(input.shape, input.stride(), input.dtype, input.get_device(), input.data_ptr() % 16),
        *(target.shape, target.dtype, target.get_device()),
        *(ignore_index, reduction, label_smoothing, z_loss),
    )


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    backend: Backend | str | None = None,
) -> torch.Tensor:
    """log(sum exp(logits)) - logits[target] of every row of logits, reduced; `torch.nn.functional.cross_entropy`.

    input: logits of shape (C), (N, C) or, as in torch, (N, C, d1, ...) with the classes in dim 1; float32, bfloat16 or
    float16 for the kernels. None of these costs a copy where it is contiguous; nor does a language model's (B, T, C),
    which goes in as `logits.transpose(1, 2)`, without its last token as `logits[:, :-1].transpose(1, 2)`.
    target: class indices of shape (), (N) or (N, d1, ...), int64 or int32 for the kernels. Rows whose target is
    `ignore_index` count for nothing. A target that is no class makes its row's loss and gradient NaN, and nothing is
    read out of bounds; torch's own implementation, which runs where no kernel does, raises IndexError or a device
    assertion instead.
    reduction: "mean" over the rows that count (NaN where none does, as in torch), "sum", or "none".
    label_smoothing: share of the target spread over all classes. z_loss: adds z_loss * log(sum exp(logits))^2 to every
    row that counts.

    Returns the loss in input's dtype, of target's shape for "none", else a scalar; computed in float32 and rounded
    once. Under autocast too, where torch's own returns float32: give it `input.float()` for that. Differentiable with
    respect to input, which is never written to and, as what the gradient is computed from, must not be changed before
    the backward pass.

    Without `backend`: CUDA C++ on an NVIDIA GPU, else Triton on a GPU, else torch's own, which a log line says once.
    Raises TypeError for an argument of another kind, ValueError for shapes that do not match, an unknown reduction or a
    label_smoothing outside 0 to 1; UsageError for targets that are no integers or on another device, and for a
    backend that does not exist or does not take the input.
    """
    # Found where the loss alone was computed before: True for a smoothing of 1 too. Of more dims the classes are moved.
    exact = type(ignore_index) is int and type(label_smoothing) is not bool and type(z_loss) is not bool
    if backend is None and prepared and exact and target is not None and inference(input, target) and input.dim() < 3:
        try:
            run = prepared.get(layout(input, target, ignore_index, reduction, label_smoothing, z_loss))
        except TypeError:  # of an argument that is named below
            run = None
        if run is not None:
            return run(input, target)[0]
    check_tensors("cross_entropy", {"input": input, "target": target})
    ignore_index = check_integer("cross_entropy", "ignore_index", ignore_index)
    check_string("cross_entropy", "reduction", reduction)
    label_smoothing = check_number("cross_entropy", "label_smoothing", label_smoothing)
    z_loss = check_number("cross_entropy", "z_loss", z_loss)
    _check(input, target, reduction, label_smoothing)
    if input.dim() > 2:
        input = input.movedim(1, -1)
    arguments = (input, target, ignore_index, reduction, float(label_smoothing), float(z_loss))
    return implementation("cross_entropy", backend, *arguments)(*arguments)


def _check(input: torch.Tensor, target: torch.Tensor, reduction: str, label_smoothing: float) -> None:
    if target.dtype not in _INTEGERS:
        given = "class probabilities" if target.is_floating_point() else dtype_name(target.dtype)
        raise UsageError(f"cross_entropy takes class indices of an integer dtype as targets, not {given}")
    shape = input.shape
    expected = shape[:1] if len(shape) == 2 else shape[:1] + shape[2:] if len(shape) > 2 else ()
    if target.shape != expected or not len(shape):
        raise ValueError(f"cross_entropy: logits of {tuple(shape)} do not go with targets of {tuple(target.shape)}")
    if not shape[1 if len(shape) > 1 else 0]:
        raise ValueError("cross_entropy: there must be at least one class")
    if reduction not in _REDUCTIONS:
        raise ValueError(f"cross_entropy: reduction is one of {', '.join(_REDUCTIONS)}, not {reduction!r}")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing must be between 0 and 1, not {label_smoothing}")
