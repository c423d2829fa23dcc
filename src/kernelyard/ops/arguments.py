"""What every public function asks of its arguments before it looks at their shapes."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import torch

from kernelyard.core.errors import UsageError

_NONE: Mapping[str, Any] = {}
# numpy's numbers, of which many a model's sizes are, count among the latter two.
_INTEGER: tuple[type[Any], ...] = (int, torch.SymInt, Integral)
_NUMBER: tuple[type[Any], ...] = (float, int, torch.SymFloat, torch.SymInt, Real)


def check_tensors(op: str, required: Mapping[str, Any], optional: Mapping[str, Any] = _NONE) -> None:
    """Raises TypeError for an argument that is no tensor, UsageError for one on another device than the first.

    A kernel reads addresses: those of another device would end the process, not the call.
    """
    first, device = "", None
    for arguments in (required, optional):
        for name, value in arguments.items():
            if not isinstance(value, torch.Tensor):
                if value is None and arguments is optional:
                    continue
                raise TypeError(f"{op}: {name} is {_kind(value)}, expected a tensor")
            if device is None:
                first, device = name, value.device
            elif value.device != device:
                raise UsageError(f"{op}: {name} is on {value.device} and {first} on {device}, expected one device")


def check_integer(op: str, name: str, value: Any) -> Any:
    """The integer as Python's own or torch's; raises TypeError for an argument that is none. True is none."""
    if type(value) is int:
        return value
    _check(op, name, value, _INTEGER, "an integer")
    return value if isinstance(value, torch.SymInt) else int(value)


def check_number(op: str, name: str, value: Any) -> Any:
    """The number as Python's own or torch's; raises TypeError for an argument that is neither a float nor an integer.

    A tensor of one element is neither.
    """
    if type(value) is float or type(value) is int:
        return value
    _check(op, name, value, _NUMBER, "a number")
    return value if isinstance(value, (torch.SymFloat, torch.SymInt)) else float(value)


def check_truth(op: str, name: str, value: Any) -> None:
    """Raises TypeError for an argument that is not True or False."""
    if type(value) is not bool:
        raise TypeError(f"{op}: {name} is {_kind(value)}, expected True or False")


def check_dtype(op: str, name: str, value: Any) -> None:
    """Raises TypeError for an argument that is no dtype."""
    if not isinstance(value, torch.dtype):
        raise TypeError(f"{op}: {name} is {_kind(value)}, expected a dtype")


def check_string(op: str, name: str, value: Any) -> None:
    """Raises TypeError for an argument that is no string."""
    if type(value) is not str:
        _check(op, name, value, (str,), "a string")


def check_dim(op: str, dim: Any, rank: int) -> Any:
    """The dim as `check_integer` has it; raises IndexError for one that a tensor of `rank` dims does not have.

    A tensor without dims has the one that torch lets it have.
    """
    dim = check_integer(op, "dim", dim)
    dims = rank or 1
    if not -dims <= dim < dims:
        raise IndexError(f"{op}: dim {dim} is out of range, expected {-dims} to {dims - 1}")
    return dim


def sizes(op: str, name: str, given: Any) -> tuple[int, ...]:
    """The sizes of an argument that is one or a sequence of them; raises TypeError for any other."""
    if isinstance(given, _INTEGER) and not isinstance(given, bool):
        return (check_integer(op, name, given),)
    # A tuple or list is found sooner than by asking the abstract class.
    if isinstance(given, str) or not isinstance(given, (tuple, list, Sequence)):
        raise TypeError(f"{op}: {name} is {_kind(given)}, expected a size or several")
    # A loop, since a generator's frame costs a microsecond.
    for size in given:
        if type(size) is not int:
            return tuple(check_integer(op, f"{name}[{i}]", size) for i, size in enumerate(given))
    return tuple(given)


def _check(op: str, name: str, value: Any, kinds: tuple[type[Any], ...], expected: str) -> None:
    """After the one comparison that tells nearly every argument to be right."""
    # A truth value is an int to isinstance, and to whatever computes with it.
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TypeError(f"{op}: {name} is {_kind(value)}, expected {expected}")


def _kind(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
