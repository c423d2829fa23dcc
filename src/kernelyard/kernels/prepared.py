"""What a repeated call skips: a launch is prepared once for each layout, and remembered.

An operator's `__init__.py` holds the table of its CUDA backend and its key: all that decides which kernel runs and how.

    prepared = Prepared()

    def layout(x: torch.Tensor, dim: int) -> Layout:
        return x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() % 16, dim

The public function goes straight to what is prepared where nothing asks for more than the result (torch.softmax takes
6.4 us of host time on an H100 host, softmax this way 7.0, of which the driver 3.0 and the fresh tensor 1.0):

    if backend is None and inference(x):
        run = prepared.get(layout(x, dim))
        if run is not None:
            return run(x)

and its cuda.py fills the table:

    key = layout(x, dim)
    run = prepared.get(key) or prepared.keep(key, _prepare(x, dim))
    return run(x)

`_prepare` returns a closure that allocates the outputs (`allocator`) and launches (`Launcher.bind`, `Family.prepare`);
it must hold no tensor. What is prepared was not refused: a layout holds all that `refusal` looks at.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo import guards
from torch.autograd import forward_ad

Layout = tuple[Any, ...]

LAYOUTS = 4096
"""Layouts that are remembered: a program whose shapes never repeat does not grow."""
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# Names of this module are found faster than attributes of torch.
_is_compiling = torch.compiler.is_dynamo_compiling
_is_grad_enabled = torch.is_grad_enabled
_are_transforms_active = torch._C._are_functorch_transforms_active
_count_modes = torch._C._len_torch_dispatch_stack
_strided = torch.strided


class Prepared(dict[Any, Callable[..., Any]]):
    """Closures by layout, up to `LAYOUTS`; emptied when full."""

    def keep(self, layout: Layout, run: Callable[..., Any]) -> Callable[..., Any]:
        """Remember `run` and return it."""
        if len(self) >= LAYOUTS:
            self.clear()
        self[layout] = run
        return run


Repeated = tuple[Callable[[torch.Tensor], bool], Any, int, Callable[..., Any] | None]
"""Whether a tensor is as before, the other arguments, the address modulo a vector, and the prepared call."""


class Latest:
    """The call that repeats, known by one look in C++ in place of the reads of a layout: 0.5 us of 1.1 on this side.

    torch's guard of compiled code compares type, dtype, device, sizes, strides, requires_grad and dispatch keys, in
    which transforms, modes and autocast show. Not whether forward mode is on, nor the address.

        check, rest, offset, run = latest.entry
        if check(x) and rest == dim and forward_ad._current_level < 0:
            address = x.data_ptr()
            if address % 16 == offset:
                return run(x, address)
    """

    def __init__(self) -> None:
        self.entry: Repeated = (lambda _: False, None, 0, None)
        self._before: Layout | None = None

    def note(self, key: Layout, leading: torch.Tensor, rest: Any, run: Callable[..., Any]) -> None:
        """A prepared call was found by its layout. It is remembered where it comes twice in a row.

        Two layouts in turn would else make a guard, of microseconds, at each call. Never of a tensor that wants a
        gradient: the guard does not see whether gradients are on, and a call under no_grad would stand for one that
        needs a graph.
        """
        if key == self._before and not leading.requires_grad:
            self.entry = (_guard(leading), rest, leading.data_ptr() % 16, run)
        self._before = key


def _guard(leading: torch.Tensor) -> Callable[[torch.Tensor], bool]:
    """Private to torch: what never holds where it is not as we know it."""
    try:
        make: Any = guards.TensorGuards  # torch's stub takes no tensors
        check: Callable[[torch.Tensor], bool] = make(leading, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return check if check(leading) else lambda _: False
    except (AttributeError, TypeError, RuntimeError):
        return lambda _: False


def observed(*tensors: torch.Tensor | None) -> bool:
    """Whether a tensor subclass, a functorch transform or a dispatch mode looks at operators, or torch has to.

    It hands an operator tensors of memory that holds their signs; those of `z.conj().imag` are a bit beside it.
    """
    if _are_transforms_active() or _count_modes() > 0:
        return True
    for tensor in tensors:  # noqa: SIM110
        if tensor is not None and (type(tensor) not in _PLAIN or tensor.is_neg()):
            return True
    return False


def within(transform: torch._C._functorch.TransformType) -> bool:
    """Whether the call is made within a functorch transform of that kind."""
    if not _are_transforms_active():
        return False
    return any(level.key() == transform for level in torch._C._functorch.get_interpreter_stack() or [])


def derivative_refusal() -> str | None:
    """Why no kernel takes a call made here, whatever its input: only autograd's backward differentiates kernels.

    torch drops what it cannot differentiate forward: the derivative would come out as zero.
    """
    if _is_compiling():
        return None
    if forward_ad._current_level >= 0:
        return "has no forward-mode derivative"
    if within(torch._C._functorch.TransformType.Grad):
        return "is differentiated by backward(), not by torch.func"
    return None


def inference(leading: torch.Tensor, *others: torch.Tensor | None) -> bool:
    """Whether a call with these tensors is one for its result alone: nothing observes it and none wants a gradient.

    Of a sparse tensor there is no layout to look up: it has no address. None stands for an optional tensor that is not
    given; whether a tensor that must be given is None, the caller asks.
    """
    if _is_compiling() or type(leading) not in _PLAIN or _are_transforms_active() or _count_modes() > 0:
        return False
    if forward_ad._current_level >= 0 or leading.is_neg() or leading.layout is not _strided:
        return False
    wants = _is_grad_enabled()
    if wants and leading.requires_grad:
        return False
    # A loop, since a generator's frame costs a microsecond.
    for tensor in others:
        if tensor is None:
            continue
        if type(tensor) not in _PLAIN or (wants and tensor.requires_grad) or tensor.is_neg():
            return False
        if tensor.layout is not _strided:
            return False
    return True


def allocator(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Callable[[], torch.Tensor]:
    """What returns a fresh contiguous tensor at each call."""
    sizes, strides = tuple(shape), torch.empty(shape, device="meta").stride()
    if device.type == "cuda" and torch.cuda.device_count() == 1:
        # What Inductor's code allocates with: 1 us, against 2 of torch.empty_strided. Looked up at each call, for a
        # proof replaces it: bound here, a layout first seen in a proof would keep the replacement.
        return lambda: guards._empty_strided_cuda(sizes, strides, dtype)  # type: ignore[attr-defined]
    return lambda: torch.empty_strided(sizes, strides, dtype=dtype, device=device)
