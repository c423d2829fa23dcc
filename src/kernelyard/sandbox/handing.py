"""One call's outputs, described as they are and written to memory that the judge lent."""

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from kernelyard.core.workload import dtype_name
from kernelyard.sandbox.device_memory import Shared
from kernelyard.sandbox.form import ALONE, Form
from kernelyard.sandbox.wire import MOST_OWNERS, OutputSpec, TensorSpec, layout

WRITTEN = ("Tensor", "Parameter")


def hand_over(leaves: list[tuple[str, Any]], shared: Shared, forms: Iterable[Form] = repeat(ALONE)) -> dict[str, Any]:
    """Write one call's outputs to memory that was lent for them alone, if they fit, and describe them."""
    written = write_out(leaves, shared, shared.size)
    shared.settle()
    return {"outputs": described(leaves, forms), "written": written}


def write_out(
    leaves: list[tuple[str, Any]], shared: Shared, room: int, start: int = 0, *, last_first: bool = False
) -> bool:
    """Write one call's outputs from byte `start` on; whether they fit into `room` bytes, and so were.

    `last_first`: their second halves before the first ones. Read from the front, what a kernel is still writing may
    come out right: of 32 MB on a stream that nobody joined, the copy ran a few us behind the kernel on an H200.
    """
    tensors = plain(leaves)
    specs, size = layout(tensors, start)
    written = len(tensors) == len(leaves) and size <= room
    if written:
        pieces = list(zip(specs, tensors, strict=True))
        if last_first:
            pieces = [half for piece in pieces for half in halves(*piece)][::-1]
        for spec, tensor in pieces:
            shared.write(spec, tensor)
    return written


def plain(leaves: list[tuple[str, Any]]) -> list[Tensor]:
    """What can be written of one call's outputs."""
    # Detached by the class: an attribute of the tensor's own under that name would compute the answer only now.
    # A parameter is written as well, though none may be returned: a reference's would else cost the baseline nothing.
    return [Tensor.detach(value) for _, value in leaves if _kind(value) in WRITTEN and is_readable(value)]


def described(leaves: list[tuple[str, Any]], forms: Iterable[Form]) -> list[dict[str, Any]]:
    return [describe(name, value, form).model_dump() for (name, value), form in zip(leaves, forms, strict=False)]


def halves(spec: TensorSpec, tensor: Tensor) -> list[tuple[TensorSpec, Tensor]]:
    """Two parts of a tensor, each with its place in memory; one where there is a single element."""
    dim = next((i for i, length in enumerate(tensor.shape) if length > 1), None)
    if dim is None:
        return [(spec, tensor)]
    length = tensor.shape[dim]
    parts = tensor.narrow(dim, 0, length // 2), tensor.narrow(dim, length // 2, length - length // 2)
    offsets = spec.offset, spec.offset + parts[0].numel() * tensor.element_size()
    return [
        (TensorSpec(dtype=spec.dtype, shape=tuple(part.shape), offset=offset), part)
        for part, offset in zip(parts, offsets, strict=True)
    ]


def is_readable(value: Any) -> bool:
    """Whether it is numbers that lie there: conjugates and negatives of complex ones are computed by whoever reads."""
    return isinstance(value, Tensor) and value.layout is torch.strided and not (value.is_conj() or value.is_neg())


def _kind(value: Any) -> str:
    """`Tensor` of a plain one and of nothing else, whatever a class calls itself."""
    if type(value) is Tensor:
        return "Tensor"
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}" if kind.__name__ == "Tensor" else kind.__name__


def describe(name: str, value: Any, form: Form = ALONE) -> OutputSpec:
    if not isinstance(value, Tensor):
        return OutputSpec(name=name, kind=_kind(value))
    kind = _kind(value)
    if value.layout is not torch.strided:
        return OutputSpec(name=name, kind=f"{kind} of layout {value.layout}")
    # A conjugate or a negative of complex numbers is computed by whoever reads it.
    if value.is_conj() or value.is_neg():
        return OutputSpec(name=name, kind=f"lazy {kind}")
    return OutputSpec(
        name=name,
        kind=kind,
        dtype=dtype_name(value.dtype),
        shape=tuple(value.shape),
        stride=value.stride(),
        device=value.device.type,
        storage_bytes=value.untyped_storage().nbytes(),
        containers=form.containers,
        memory_of=form.memory_of[:MOST_OWNERS],
    )
