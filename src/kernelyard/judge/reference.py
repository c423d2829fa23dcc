"""What a reference hands over: its tensors, whether they can cross to a worker, and what it left behind."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernelyard.core.workload import dtype_name
from kernelyard.judge.question import tensors_of
from kernelyard.sandbox.wire import WIRE_DTYPES, named_leaves


class InvalidProblem(Exception):
    """The reference cannot serve as one."""


def outputs_of(returned: Any) -> list[tuple[str, Any]]:
    """What a reference returned; a Parameter as the plain tensor that it holds, which the judge may write to."""
    leaves = named_leaves(returned)
    return [(name, value.detach() if isinstance(value, torch.nn.Parameter) else value) for name, value in leaves]


def writes(arguments: list[Any]) -> list[int | None]:
    """How often torch has written to each input; None for one of inference mode, of which it does not count that."""
    return [None if tensor.is_inference() else tensor._version for tensor in tensors_of(arguments)]


def must_cross(leaves: Sequence[tuple[str, Any]]) -> None:
    """What cannot be handed to a worker or taken from one is no fault of the solution's."""
    for name, value in leaves:
        if not isinstance(value, Tensor):
            continue
        if value.layout is not torch.strided:
            raise InvalidProblem(f"{name} is of layout {value.layout}; expected a strided tensor")
        if value.dtype not in WIRE_DTYPES.values():
            raise InvalidProblem(f"{name} is of {dtype_name(value.dtype)}; expected one of {', '.join(WIRE_DTYPES)}")


class _Kernels(TorchDispatchMode):
    """Counts what torch is asked to compute; a view launches nothing, nor does memory that is only asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.count += not (func.is_view or func.overloadpacket.__name__.startswith("empty"))
        return func(*args, **(kwargs or {}))


def kernel_count(model: torch.nn.Module, arguments: list[Any]) -> int:
    """How many kernels a call launches on a GPU, or a few less: an operator may be several."""
    with torch.no_grad(), _Kernels() as counted:
        model(*arguments)
    return max(1, counted.count)


def random_state(device: torch.device) -> Tensor:
    """Of the generators that a model on `device` draws from."""
    host = torch.get_rng_state()
    return torch.cat([host, torch.cuda.get_rng_state(device)]) if device.type == "cuda" else host
