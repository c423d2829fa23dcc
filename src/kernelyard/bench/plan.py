"""What is measured: the points of an operator's sweeps, and at each of them in which modes and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernelyard.core.errors import UsageError, unknown
from kernelyard.core.operator import Operator, Sweep
from kernelyard.core.workload import Mode, Workload

SPEED, MEMORY, HOST = METRICS = ("speed", "memory", "host")


@dataclass(frozen=True)
class Request:
    """What a user asked for, over all operators; in every field an empty one means all."""

    dtypes: tuple[str, ...]
    modes: tuple[Mode, ...]
    metrics: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    x_names: tuple[str, ...] = ()
    public: bool = True
    """Whether the public function is among the contenders where the host's time is measured."""


@dataclass(frozen=True)
class Point:
    """One size of one dtype's sweep."""

    sweep: Sweep
    x: int
    workload: Workload
    modes: tuple[Mode, ...]
    metrics: tuple[str, ...]
    public: bool = False
    """Whether the public function is measured too: where the host's time counts."""

    @property
    def gradients(self) -> bool:
        """Whether any of it needs a backward pass."""
        return any(mode is not Mode.FORWARD for mode in self.modes)


def points(operator: Operator, request: Request, device_type: str) -> list[Point]:
    """The points of all sweeps that the request leaves anything of.

    Raises UsageError for an x axis or a size that no sweep has.
    """
    swept = [(dtype, sweep) for dtype in request.dtypes for sweep in operator.sweeps(dtype, device_type)]
    axes = sorted({sweep.x_name for _, sweep in swept})
    for name in request.x_names:
        if name not in axes:
            raise unknown(f"x axis of {operator.name}", name, axes)
    chosen = [(dtype, sweep) for dtype, sweep in swept if not request.x_names or sweep.x_name in request.x_names]
    _check_sizes(operator, request.sizes, [sweep for _, sweep in chosen], device_type)
    found = []
    for _, sweep in chosen:
        modes, metrics = _asked(operator, sweep, request)
        if modes and metrics:
            found += [
                Point(sweep, x, workload, modes, metrics, public=sweep.host and request.public)
                for x, workload in sweep.points
                if not request.sizes or x in request.sizes
            ]
    return found


def _asked(operator: Operator, sweep: Sweep, request: Request) -> tuple[tuple[Mode, ...], tuple[str, ...]]:
    possible = (Mode.FORWARD,) if sweep.host or not operator.differentiable else sweep.modes
    measurable = (HOST,) if sweep.host else (SPEED, MEMORY)
    return (
        tuple(mode for mode in possible if mode in request.modes),
        tuple(metric for metric in measurable if metric in request.metrics),
    )


def _check_sizes(operator: Operator, sizes: Sequence[int], sweeps: list[Sweep], device_type: str) -> None:
    present: dict[str, set[int]] = {}
    for sweep in sweeps:
        present.setdefault(sweep.x_name, set()).update(x for x, _ in sweep.points)
    if absent := [x for x in sizes if not any(x in known for known in present.values())]:
        known = "; ".join(f"{name} of {', '.join(map(str, sorted(xs)))}" for name, xs in present.items())
        raise UsageError(f"--x {absent[0]}: {operator.name} has on {device_type} sweeps over {known}")
