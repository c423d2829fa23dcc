"""The weights of a reference: a copy in another dtype, and those that a constructor makes constant, redrawn.

A solution that leaves such weights out must not pass. The affine weights of a norm are ones, its biases and running
means zeros, its running variances ones; an answer that never reads them is right by the constructor alone. What the
constructor draws at random stays as the seed has it, but for the gain of a deep network's (judge/gain.py).
"""

import copy
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FunctionType

import torch
from torch import Tensor
from torch.nn import Module

from kernelyard.core.problem import each_tensor, kept_in
from kernelyard.judge.question import tensors_of

SPREAD = 0.25
"""Around a constant c, in units of |c| (of 1 for zeros): a variance stays positive, a sign stays what it is. Half of it
at least: of one number drawn from all of it one in eight is within what bf16 may be off by."""
# What every module has: its parameters and the like, which torch converts.
_OF_TORCH = vars(Module()).keys()


def converted(model: Module, dtype: torch.dtype, rebuild: Callable[[], Module]) -> Module:
    """A copy in another dtype, tensors that are plain attributes included, or lie in lists that are: the first state
    of an LSTM often is one.

    `rebuild` constructs the model anew, for one that a copy would not be free of: minGPT's block keeps a lambda over
    its own layers, which a deep copy shares; and for one that cannot be copied: what `weight_norm` computes of weights
    is no leaf, and a lock is only itself.
    """
    copied = None
    if not _shares_itself(model):
        with suppress(RuntimeError, TypeError):
            copied = copy.deepcopy(model).to(dtype)
    if copied is None:
        copied = rebuild().to(dtype)
        copied.load_state_dict(model.state_dict())
    for module in copied.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, Tensor):
                setattr(module, name, value.to(kept_in(value, dtype)))
            elif name not in _OF_TORCH and type(value) in (list, tuple, dict) and tensors_of(value):
                setattr(module, name, each_tensor(value, lambda x: x.to(kept_in(x, dtype))))
    return copied


def _shares_itself(model: Module) -> bool:
    """Whether a function among the attributes encloses a module or a tensor."""
    attributes = (value for module in model.modules() for value in vars(module).values())
    cells = (cell for value in attributes if isinstance(value, FunctionType) for cell in value.__closure__ or ())
    return any(isinstance(cell.cell_contents, (Module, Tensor)) for cell in cells)


def redraw_constants(model: Module) -> dict[str, float]:
    """Redraw each constant floating-point weight and buffer in place; returns what it was, by name."""
    constants: dict[str, float] = {}
    for name, value in model.state_dict().items():
        if (constant := _constant(value)) is None:
            continue
        constants[name] = constant
        generator = torch.Generator(value.device).manual_seed(secrets.randbits(63))
        noise = torch.rand(value.shape, generator=generator, device=value.device) - 0.5
        value.copy_(constant + SPREAD * (abs(constant) or 1.0) * (noise + noise.sign() / 2))
    return constants


def fill_constants(model: Module, constants: Mapping[str, float]) -> None:
    """Back to what `redraw_constants` found."""
    state = model.state_dict()
    for name, constant in constants.items():
        state[name].fill_(constant)


def _constant(value: Tensor) -> float | None:
    """The one finite value that a tensor holds, if it is floating-point and holds one."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
        return None
    if _is_expanded(value):
        return None
    first = value.reshape(-1)[0]
    return first.item() if bool((value == first).all()) and bool(torch.isfinite(first)) else None


def handed_over(model: Module) -> dict[str, Tensor]:
    """The weights that a worker is given; an expanded one stays as the constructor has it there, too."""
    return {name: value for name, value in model.state_dict().items() if not _is_expanded(value)}


def _is_expanded(value: Tensor) -> bool:
    """Whether elements of it are one, and cannot be written to by themselves."""
    return any(stride == 0 and extent > 1 for stride, extent in zip(value.stride(), value.shape, strict=True))
