"""How the tensors of a gated linear unit look to a kernel: runs of elements, or rows that lie a pitch apart."""

import torch

from kernelyard.kernels.layout import along
from kernelyard.kernels.prepared import Layout, Prepared

prepared = Prepared()
"""The forward calls of the CUDA kernels, by `layout`."""


def layout(activation: str, gate: torch.Tensor, up: torch.Tensor | None) -> Layout:
    """All that decides how a call is computed, and whether it is taken at all."""
    if up is None:
        return activation, *place(gate)
    return activation, *place(gate), *place(up)


def place(x: torch.Tensor) -> Layout:
    """What kernels see of one tensor, but for its address."""
    return x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() % 16


def shape_error(gate: torch.Tensor, up: torch.Tensor | None) -> str | None:
    """What is wrong with the shapes of a call, or None."""
    if up is None:
        if gate.dim() and gate.shape[-1] % 2 == 0:
            return None
        return f"a packed gate holds gate and up in the halves of its last dim, whose size is even, not {_size(gate)}"
    if gate.shape != up.shape:
        return f"gate and up have one shape, not {_size(gate)} and {_size(up)}"
    return None


def halves(gate: torch.Tensor, up: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """gate and up, where `up` is None or empty as views of the packed tensor."""
    if up is not None and up.shape == gate.shape:
        return gate, up
    n = gate.shape[-1] // 2
    return gate.narrow(-1, 0, n), gate.narrow(-1, n, n)


def rows_of(*tensors: torch.Tensor) -> tuple[list[torch.Tensor], list[int], int, int]:
    """Equally shaped, non-empty tensors as (data, pitches, rows, columns), copied where rows have no one pitch.

    One row where all of them are contiguous: then pitches do not matter and neither does the rows' length.
    """
    views = [along(tensor, -1) for tensor in tensors]
    data, pitches = [view.data for view in views], [view.pitch for view in views]
    rows, columns = views[0].outer, views[0].length
    if all(pitch == columns for pitch in pitches):
        return data, pitches, 1, rows * columns
    return data, pitches, rows, columns


def gradients_like(gate: torch.Tensor, up: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Fresh contiguous dgate and dup; packed, dgate is both and dup is empty."""
    dgate = torch.empty_like(gate, memory_format=torch.contiguous_format)
    dup = gate.new_empty(0) if up is None else torch.empty_like(up, memory_format=torch.contiguous_format)
    return dgate, dup


def _size(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a scalar"
