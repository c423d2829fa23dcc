"""A problem in KernelBench's shape: a reference module, how its inputs are made, and the file both come from."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def seed_generators(seed: int) -> None:
    """torch.manual_seed, of the generators that this machine has.

    torch's own also prepares the seeding of every kind of device that was never used, with its stack as text: 0.2 ms,
    at each of the twenty inputs of a round that is timed, where this takes 1 us.
    """
    torch.default_generator.manual_seed(seed)
    if torch.accelerator.is_available():
        of_device = torch.get_device_module()
        getattr(of_device, "manual_seed_all", of_device.manual_seed)(seed)


def readable(path: Path | str) -> str:
    """A path as a record keeps it, which is UTF-8: bytes of it that are none are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def without_mark(text: str) -> str:
    """Python drops a byte order mark before it parses a file; the hash stays that of the text as it came."""
    return text.removeprefix("\ufeff")


@dataclass(frozen=True)
class Source:
    """A file of Python, read once."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        """The file's, as a record keeps it."""
        return readable(self.path.name)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def as_solution(problem: Source) -> str:
    """The problem's own text, its Model under a solution's name."""
    return f"{problem.text}\n\n\nModelNew = Model\n"


@dataclass(frozen=True)
class Problem:
    """A loaded problem file."""

    source: Source
    model_class: Callable[..., torch.nn.Module]
    get_inputs: Callable[[], Any]
    get_init_inputs: Callable[[], Any]
    no_stress: frozenset[str] = frozenset()
    """Stresses that its inputs must not be subjected to; `NO_STRESS` in the file."""
    allow_nonfinite: bool | frozenset[str] = False
    """True where NaN and infinities are right answers and have to be met exactly, or the outputs in which they are;
    `ALLOW_NONFINITE` in the file."""
    train_mode: bool = False
    """Reference and solutions run in training mode: batch norms by the statistics of their batch."""
    in_place: bool = False
    """Whether a solution may overwrite its inputs; `IN_PLACE` in the file."""

    def may_be_nonfinite(self, output: str) -> bool:
        """Whether NaN or an infinity can be right in that output."""
        return self.allow_nonfinite if isinstance(self.allow_nonfinite, bool) else output in self.allow_nonfinite

    def make_model(self, arguments: list[Any], seed: int, dtype: torch.dtype, device: torch.device) -> torch.nn.Module:
        """The reference with the weights of `seed`, in eval mode unless the problem is one of training."""
        seed_generators(seed)
        model = self.model_class(*arguments)
        for name, weight in (*model.named_parameters(), *model.named_buffers()):
            if weight.is_complex():
                # torch's `.to(dtype)` drops the imaginary part, here and of the solution's own.
                raise ValueError(f"complex weights, as {name}; expected torch.view_as_real's")
        return model.to(device=device, dtype=dtype).train(self.train_mode)

    def make_inputs(self, seed: int, dtype: torch.dtype, device: torch.device) -> list[Any]:
        """Inputs of `seed` on `device`: floating-point tensors in `dtype`, others as they are (complex ones twice as
        precise in float64).

        They are made on the device where the file names none: a GPU fills 6 GB at once, a CPU in ten seconds.
        """
        seed_generators(seed)
        with torch.device(device):
            made = listed(self.get_inputs(), "get_inputs")
        return [place(value, dtype, device) for value in made]


def listed(returned: Any, name: str) -> list[Any]:
    """What a problem's function of that name returned. Raises TypeError for what is no list or tuple."""
    if not isinstance(returned, (list, tuple)):
        raise TypeError(f"{name} returns a {type(returned).__name__}; expected a list")
    return list(returned)


def place(value: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Tensors within `value` on `device`, floating-point ones in `dtype`; everything else as it is."""

    def placed(x: Tensor) -> Tensor:
        # What torch conjugates or negates lazily does not lie in memory as it reads.
        return x.resolve_conj().resolve_neg().to(device=device, dtype=kept_in(x, dtype)).contiguous()

    return each_tensor(value, placed)


def kept_in(x: Tensor, dtype: torch.dtype) -> torch.dtype:
    """The dtype of `x` where all that is floating-point is held in `dtype`."""
    if x.is_complex() and dtype is torch.float64:
        return torch.complex128
    return dtype if x.is_floating_point() else x.dtype


def each_tensor(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """`value` with `change` of every tensor within its lists, tuples and dicts; everything else as it is."""
    if isinstance(value, dict):
        return {key: each_tensor(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [each_tensor(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)  # a named tuple's are arguments
    return change(value) if isinstance(value, Tensor) else value
