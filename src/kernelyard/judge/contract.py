"""What an answer has to be whatever its values: named, shaped and typed as the honest one, and lying in memory so."""

from dataclasses import dataclass

from torch import Tensor

from kernelyard.core.verdict import ErrorFigures, Status
from kernelyard.core.workload import dtype_name
from kernelyard.judge.question import Honest
from kernelyard.sandbox.form import Form
from kernelyard.sandbox.returned import Fetched
from kernelyard.sandbox.wire import Container, OutputSpec


@dataclass(frozen=True)
class Mark:
    """How an answer fared."""

    status: Status
    message: str = ""
    report: str = ""
    errors: tuple[ErrorFigures, ...] = ()


def breach(honest: Honest, fetched: Fetched) -> Mark | None:
    """What of one call's outputs is not as the honest answer's, whatever their values; None for nothing."""
    names = tuple(output.name for output in fetched.outputs)
    if names != honest.names:
        return Mark(
            Status.INCORRECT_SHAPE,
            f"returned {', '.join(names) or 'nothing'}; expected {', '.join(honest.names)}",
        )
    for output, expected, form in zip(fetched.outputs, honest.answers, honest.forms, strict=True):
        if output.kind != "Tensor":
            return Mark(Status.REJECTED, f"{output.name} is a {output.kind}; expected a plain torch.Tensor")
        if output.shape != tuple(expected.shape):
            return Mark(
                Status.INCORRECT_SHAPE, f"{output.name}: shape {output.shape}, expected {tuple(expected.shape)}"
            )
        plain = dtype_name(expected.dtype)
        if output.dtype != plain:
            return Mark(Status.INCORRECT_DTYPE, f"{output.name}: dtype {output.dtype}, expected {plain}")
        if reason := misplaced(output, expected) or _tied(output, form):
            return Mark(Status.REJECTED, f"{output.name}: {reason}")
    if fetched.tensors is None:
        return Mark(Status.REJECTED, "the outputs were described and not written")
    return None


def misplaced(output: OutputSpec, expected: Tensor) -> str | None:
    """What is wrong with where an output of the right shape and dtype lies, in one line; None if nothing is.

    Strides are those of the honest answer, or of a contiguous tensor; a broadcast one, which is smaller than it says,
    is neither. The storage has to hold what the shape says: one resized to nothing is filled when somebody looks.
    """
    if output.device != expected.device.type:
        return f"on {output.device or 'no device'}, expected {expected.device.type}"
    if not expected.numel():
        return None
    shape = tuple(expected.shape)
    given = _telling(output.stride, shape)
    if (
        given is None
        or 0 in given
        or given not in (_telling(contiguous(shape), shape), _telling(expected.stride(), shape))
    ):
        return f"strides {output.stride}, expected {contiguous(shape)}"
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, output.stride, strict=True))
    if output.storage_bytes < span * expected.element_size():
        return f"a storage of {output.storage_bytes} bytes, expected {span * expected.element_size()} at least"
    return None


def _tied(output: OutputSpec, form: Form) -> str | None:
    """What is wrong with how an output hangs together with others, in one line; None if nothing is.

    Whoever changes one of two tensors in one memory changes both. So an answer may lie in an input, or in another
    output, only where the reference's lies in that very one.
    """
    if output.containers != form.containers:
        return f"returned in {_said(output.containers)}, expected {_said(form.containers)}"
    for owner in output.memory_of:
        if owner not in form.memory_of:
            return f"it lies in the memory of {owner}, expected memory of its own"
    return None


def _said(containers: tuple[Container, ...]) -> str:
    return " in ".join(f"{kind} of {size}" for kind, size in reversed(containers)) or "nothing"


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor of that shape."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _telling(stride: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of extents over 1; what stands for an extent of 1 means nothing. None where they are too few."""
    if len(stride) != len(shape):
        return None
    return tuple(step for step, extent in zip(stride, shape, strict=True) if extent > 1)
