"""Gated linear units in CUDA C++: glu.cu, specialised for the activation and for how vectors fit the tensors."""

from collections.abc import Callable
from pathlib import Path

import torch

from kernelyard.kernels.glu.layout import gradients_like, halves, layout, place, prepared, rows_of
from kernelyard.kernels.launch import Launcher
from kernelyard.kernels.layout import along
from kernelyard.kernels.plans import VECTOR
from kernelyard.kernels.prepared import Prepared, allocator
from kernelyard.kernels.support import TYPES

THREADS = 256
BYTES = 16
"""Of each tensor that a thread has on its way at once. One vector is enough, and it is all the same: 16 to 128 bytes,
128 to 1024 threads, plain or streaming accesses are within 1 % (101.4 % of the copy forward, 100.3 backward, at 2^28
bf16 elements); only loads that bypass L1 (L1::no_allocate) lose, 3 %."""

_STRUCTS = {"silu": "Silu", "none": "Gelu", "tanh": "GeluTanh"}
_OPERATORS = {"silu": "swiglu", "none": "geglu", "tanh": "geglu"}
_backwards = Prepared()


def forward(activation: str, gate: torch.Tensor, up: torch.Tensor | None) -> torch.Tensor:
    """activation(gate) * up, contiguous; where `up` is None, of the halves of `gate`."""
    key = layout(activation, gate, up)
    run = prepared.get(key) or prepared.keep(key, _prepare_forward(activation, gate, up))
    return run(gate, up)


def backward(
    activation: str, dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of gate and up; where `up` is None, that of the packed gate and an empty tensor."""
    key = (*layout(activation, gate, up), *place(dy))
    run = _backwards.get(key) or _backwards.keep(key, _prepare_backward(activation, dy, gate, up))
    return run(dy, gate, up)


def _prepare_forward(activation: str, gate: torch.Tensor, up: torch.Tensor | None) -> Callable[..., torch.Tensor]:
    left, right = halves(gate, up)
    half = _half(gate) if up is None else 0
    empty = allocator(left.shape, left.dtype, left.device)
    if not left.numel():
        return lambda gate, up: empty()
    if _is_scattered(left, right):
        return lambda gate, up: forward(activation, *_gathered(gate, up))
    launch = _bind("forward", activation, left, right, torch.empty_like(left, memory_format=torch.contiguous_format))

    def run(gate: torch.Tensor, up: torch.Tensor | None) -> torch.Tensor:
        y = empty()
        at = gate.data_ptr()
        launch(at, at + half if up is None else up.data_ptr(), y.data_ptr())
        return y

    return run


def _prepare_backward(
    activation: str, dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor | None
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    left, right = halves(gate, up)
    half, written = (_half(gate), left.shape[-1] * left.element_size()) if up is None else (0, 0)
    if not dy.numel():
        return lambda dy, gate, up: gradients_like(gate, up)
    if _is_scattered(dy, left, right):
        return lambda dy, gate, up: backward(activation, dy.contiguous(), *_gathered(gate, up))
    launch = _bind("backward", activation, dy, left, right, *halves(*gradients_like(gate, up)))

    def run(dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        dgate, dup = gradients_like(gate, up)
        at, to = gate.data_ptr(), dgate.data_ptr()
        if up is None:
            launch(dy.data_ptr(), at, at + half, to, to + written)
        else:
            launch(dy.data_ptr(), at, up.data_ptr(), to, dup.data_ptr())
        return dgate, dup

    return run


def _half(gate: torch.Tensor) -> int:
    """Bytes from the gate to `up` in a packed tensor: halves of one column are rows at any stride of the last dim."""
    return gate.shape[-1] // 2 * gate.stride(-1) * gate.element_size()


def _is_scattered(*tensors: torch.Tensor) -> bool:
    """Whether one of them has no rows at one pitch, so that it has to be copied."""
    return any(along(tensor, -1).data is not tensor for tensor in tensors)


def _gathered(gate: torch.Tensor, up: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    return gate.contiguous(), None if up is None else up.contiguous()


def _bind(direction: str, activation: str, *tensors: torch.Tensor) -> Callable[..., None]:
    """The launch for tensors that lie as these do; takes their addresses."""
    data, pitches, rows, columns = rows_of(*tensors)
    like, size = data[0], data[0].element_size()
    vec = _vector(size, [tensor.data_ptr() for tensor in data], [] if rows == 1 else [columns, *pitches])
    items = BYTES // (vec * size)
    columns, rest = divmod(columns, vec)
    across = THREADS
    while across > 1 and across * items >= 2 * columns:
        across //= 2
    held = THREADS // across
    launcher = Launcher(
        f"{_OPERATORS[activation]}_cuda.{direction}",
        Path(__file__).with_name("glu.cu"),
        f"glu_{direction}",
        (
            ("TYPE", TYPES[like.dtype]),
            ("VEC", vec),
            ("ACROSS", across),
            ("ROWS", held),
            ("ITEMS", items),
            ("ACTIVATION", _STRUCTS[activation]),
        ),
        device=like.device,
        threads=THREADS,
    )
    tiles = max(1, -(-columns // (across * items)))
    strides = [pitch // vec for pitch in pitches]
    return launcher.bind(-(-rows // held) * tiles, len(data), rows, columns, tiles, rest, *strides)


def _vector(size: int, addresses: list[int], lengths: list[int]) -> int:
    """Elements of the widest vector that all addresses and lengths are multiples of."""
    width = VECTOR
    while any(at % width for at in addresses) or any(n * size % width for n in lengths):
        width //= 2
    return width // size
