"""How an answer has to lie in memory: where the honest one lies, with its strides or contiguous."""

from torch import Tensor

from kernelyard.sandbox.wire import OutputSpec


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
