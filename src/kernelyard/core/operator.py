"""What an operator's folder declares once and everything else reads."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from kernelyard.core.workload import Mode, Workload


class Backend(str, Enum):
    """The ways an operator is written, in the ladder's order."""

    EAGER = "eager"
    TORCHSCRIPT = "torchscript"
    COMPILE = "compile"
    TRITON = "triton"
    CUDA = "cuda"


@dataclass(frozen=True)
class Cost:
    """The least a workload must do: each input read once, each output written once."""

    read_bytes: int
    write_bytes: int
    operations: int
    """Floating-point operations; a multiply-add counts as two."""
    matrix: bool = False
    """True where the operations are matrix products, whose ceiling is the tensor cores'."""

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.write_bytes


@dataclass(frozen=True)
class Tolerance:
    """How far from float64 an answer may be, measured by the honest eager answer's own error in the same dtype.

    Three figures, because each is blind where another sees: the largest absolute error and the root mean square are
    blind to small elements beside a large one; the largest relative error (over the element's size plus the honest
    answer's median error) is blind where cancellation makes the honest answer's own relative error large. An absolute
    error of `multiple` times the honest median condemns no element, however small the element is.
    """

    multiple: float = 8.0
    """Allowed multiple of the honest error (of half an ulp of the dtype where the honest answer is luckier than
    that). Room for another order of summation; TF32 in place of fp32 is off by about 1000. Of integers and truth
    values: of the honest answer's count of unequal ones."""
    fp32_ulps: float = 64.0
    """Relative error always allowed, in ulps of fp32, the precision of the arithmetic: exp2(x * log2 e) loses about
    |x| ulps on an element of size exp(-|x|), which no same-dtype ruler shows."""


@dataclass(frozen=True)
class Implementation:
    """One backend of an operator, or a foreign library's way of it, ready to be called."""

    backend: str
    """The backend's name, or the library's."""
    call: Callable[..., Any]
    """Takes the operator's arguments in order and returns its output, or a tuple of its outputs; differentiable in the
    arguments that the operator names."""
    refusal: Callable[..., str | None]
    """With the same arguments: why this backend does not take them here, or None if it does."""
    source_files: tuple[Path, ...] = ()
    note: str = ""
    """One line on what a foreign library computes that the operator does not ask for; shown under every table."""
    walks_once: bool = False
    """A second backward over the same retained graph may be wrong; where it is, BACKWARD, which keeps one, is not
    timed."""
    overwrites: bool = False
    """It writes its results over its arguments, or gradients over those that it is given: it gets copies of its own."""


@dataclass(frozen=True)
class Sweep:
    """The sizes that `bench` times for one dtype: an x axis and the workload at each of its values.

    An operator may have several; what tells them apart is `x_name` and the options of their workloads.
    """

    x_name: str
    x_label: str
    points: tuple[tuple[int, Workload], ...]
    modes: tuple[Mode, ...] = tuple(Mode)
    """The modes that are timed; of a host sweep, forward alone."""
    host: bool = False
    """Small sizes, at which the host's time per call is what counts: measured in place of the device's."""


@dataclass(frozen=True)
class Target:
    """The percent of a copy of as many bytes that the best of triton and cuda is to reach, on an H100 in bfloat16 and
    float32."""

    x_name: str
    """Of the sweeps that it is asked of."""
    mode: Mode
    steps: tuple[tuple[int, float], ...]
    """The largest x and the percent, ascending; beyond the last nothing is asked."""

    def percent(self, x: float) -> float | None:
        return next((percent for largest, percent in self.steps if x <= largest), None)


@dataclass(frozen=True)
class Operator:
    """One operator of the library. Its backends are the files beside its definition."""

    name: str
    summary: str
    """One line for `kernelyard list`."""
    make_inputs: Callable[[Workload, torch.device], dict[str, Any]]
    """The call's arguments by name and in its order, made from the workload's seed; none needs grad yet."""
    reference: Callable[..., Any]
    """The definition in plain torch; called with float64 tensors it is the ground truth."""
    cost: Callable[[Workload, Mode], Cost]
    differentiable: tuple[str, ...]
    """Names of the arguments that get gradients; one that a workload gives as None is passed over there."""
    workloads: tuple[Workload, ...]
    """The grid that `check` proves on every device; small enough for Triton's interpreter."""
    gpu_workloads: tuple[Workload, ...]
    """What `check` adds on a GPU: long rows, many rows."""
    sweeps: Callable[[str, str], tuple[Sweep, ...]]
    """The sweeps of `bench` for (dtype, device type); the first is the one of the operator's plots and tables."""
    ladder: Callable[[str], Workload]
    """The workload of `ladder` for a device type."""
    workload_of: Callable[[tuple[int, ...], str], Workload]
    """The workload for a shape and dtype given by the user; raises UsageError for a shape it does not take."""
    public_arguments: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]] = lambda *inputs: (inputs, {})
    """With a backend's arguments: the positional and the named arguments of the public function for the same call."""
    outputs: tuple[str, ...] = ("output",)
    """Names of what a call returns: one tensor, or a tuple of as many as there are names."""
    targets: tuple[Target, ...] = ()
    """What `bench` and the tables hold it against."""
    tolerance: Tolerance = Tolerance()
