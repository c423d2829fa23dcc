"""The measuring of what was proved, point by point: device time, peak memory, host time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any

import torch

from kernelyard.bench.plan import HOST, MEMORY, SPEED, Point
from kernelyard.bench.prove import Say
from kernelyard.core.environment import Environment
from kernelyard.core.errors import first_line
from kernelyard.core.operator import Implementation, Operator
from kernelyard.core.verdict import Timing
from kernelyard.core.workload import Mode
from kernelyard.judge.floor import Ceilings, floor, measure_ceilings
from kernelyard.judge.prepare import prepare
from kernelyard.judge.timing import Call, host_times, interleaved, peak_memory
from kernelyard.report import ledger
from kernelyard.report.ledger import BenchRow
from kernelyard.report.table import format_ms
from kernelyard.suites.library import PUBLIC, is_ours, public_call, version_of

COPY = "copy"
"""Name of the copy that runs between the backends; no backend is called so."""
MEMORY_CALLS = 5


@dataclass
class Run:
    """What all operators of a run share: the device, its ceilings, and what failed."""

    device: torch.device
    seconds: float
    environment: Environment
    say: Say
    known_ceilings: dict[tuple[str, bool], Ceilings] = field(default_factory=dict)
    failures: set[tuple[str, str, Mode, str]] = field(default_factory=set)
    """Operator, backend and mode of what was proved and then raised while it was timed, or took a time that no device
    could reach, and why."""

    @property
    def negative(self) -> bool:
        """Whether one of them is ours."""
        return any(is_ours(backend) for _, backend, _, _ in self.failures)

    def measure(
        self, operator: Operator, point: Point, mode: Mode, candidates: Sequence[Implementation]
    ) -> list[BenchRow]:
        """The rows of every candidate at one point, all timed against one another in one go."""
        return _Measurement(self, operator, point, mode).rows(candidates)

    def ceilings(self, dtype: str, matrix: bool) -> Ceilings:
        """Measured once a run: the bound that no honest time is under, and the matrix product's ceiling."""
        key = (dtype if matrix else "", matrix)
        if key not in self.known_ceilings:
            self.known_ceilings[key] = measure_ceilings(self.device, dtype, matrix=matrix)
        return self.known_ceilings[key]


@dataclass
class _Measurement:
    """One point in one mode."""

    run: Run
    operator: Operator
    point: Point
    mode: Mode

    def rows(self, candidates: Sequence[Implementation]) -> list[BenchRow]:
        inputs = self.operator.make_inputs(self.point.workload, self.run.device)
        calls = self._calls(candidates, inputs)
        measures = {SPEED: self._speeds, MEMORY: self._memories, HOST: self._hosts}
        return [row for metric in self.point.metrics for row in measures[metric](calls)] if calls else []

    def _calls(self, candidates: Sequence[Implementation], inputs: dict[str, Any]) -> dict[str, Call]:
        """A call without arguments for each candidate, run once; those that raise are named and left out."""
        calls: dict[str, Call] = {}
        for candidate in candidates:
            try:
                call = self._call(candidate, inputs)
                with torch.inference_mode(self.point.sweep.host):
                    call()
            except Exception as error:
                # Proved alone and failing here is mostly memory: the others keep their results on the device.
                self._fail(candidate.backend, first_line(error))
            else:
                calls[candidate.backend] = call
        return calls

    def _call(self, candidate: Implementation, inputs: dict[str, Any]) -> Call:
        if candidate.backend == PUBLIC:
            # Proved through a function that sorts the arguments, which is no cost of the user's.
            return public_call(self.operator, inputs.values())
        if self.point.sweep.host:
            return partial(candidate.call, *inputs.values())
        return prepare(self.operator, candidate, self.point.workload, self.mode, self.run.device, inputs)

    def _speeds(self, calls: dict[str, Call]) -> list[BenchRow]:
        cost = self.operator.cost(self.point.workload, self.mode)
        copy = _copy(cost.bytes, self.run.device)
        timings = interleaved({**calls, COPY: copy}, self.run.device, seconds=self.run.seconds)
        ceilings = self.run.ceilings(self.point.workload.dtype, cost.matrix)
        copied = ceilings.model_copy(update={"copy_gbps": cost.bytes / timings[COPY].p50_ms / 1e6})
        limit, impossible_ms = floor(cost, copied), floor(cost, ceilings).impossible_ms
        rows = []
        for backend in calls:
            timing = timings[backend]
            if timing.p50_ms < impossible_ms:
                self._fail(backend, f"{format_ms(timing.p50_ms)} is under the possible {format_ms(impossible_ms)}")
                continue
            rows.append(
                self._row(
                    backend,
                    SPEED,
                    "ms",
                    timing,
                    bytes=limit.bytes,
                    copy_gbps=limit.copy_gbps,
                    floor_ms=limit.floor_ms,
                    percent_of_floor=100 * limit.floor_ms / timing.p50_ms,
                    datasheet_gbps=limit.datasheet_gbps,
                )
            )
        return rows

    def _memories(self, calls: dict[str, Call]) -> list[BenchRow]:
        least = self.operator.cost(self.point.workload, self.mode).write_bytes
        rows = []
        for backend, call in calls.items():
            peaks = [peak_memory(call, self.run.device) for _ in range(MEMORY_CALLS)]
            known = sorted(peak / 1e6 for peak in peaks if peak is not None)
            # A CPU's allocator hands out pages it already holds, which the resident set then does not show.
            if not known or (self.run.device.type == "cpu" and known[len(known) // 2] * 1e6 < least):
                continue
            middle = (known[len(known) // 2], known[len(known) // 5], known[-1 - len(known) // 5])
            rows.append(self._row(backend, MEMORY, "MB", middle, bytes=least))
        return rows

    def _hosts(self, calls: dict[str, Call]) -> list[BenchRow]:
        least = self.operator.cost(self.point.workload, self.mode).bytes
        timings = host_times(calls, self.run.device)
        return [self._row(backend, HOST, "us", timings[backend], bytes=least) for backend in calls]

    def _row(
        self, backend: str, metric: str, unit: str, measured: Timing | tuple[float, float, float], **others: Any
    ) -> BenchRow:
        """`measured` is a timing, whose milliseconds become the unit, or median, p20 and p80 in the unit."""
        point, environment = self.point, self.run.environment
        timer, cache = None, None
        if isinstance(measured, Timing):
            timer, cache = measured.timer, measured.cache
            scale = 1e3 if unit == "us" else 1.0
            measured = (scale * measured.p50_ms, scale * measured.p20_ms, scale * measured.p80_ms)
        return BenchRow(
            kernel_name=self.operator.name,
            kernel_provider=backend,
            kernel_operation_mode=self.mode.value,
            metric_name=metric,
            metric_unit=unit,
            x_name=point.sweep.x_name,
            x_label=point.sweep.x_label,
            x_value=point.x,
            y_value_50=measured[0],
            y_value_20=measured[1],
            y_value_80=measured[2],
            extra_benchmark_config_str=ledger.config_text(point.workload.dtype, **dict(point.workload.options)),
            gpu_name=environment.device_name,
            timestamp=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            timer=timer,
            cache=cache,
            torch_version=environment.torch,
            triton_version=environment.triton,
            cuda_version=environment.cuda,
            driver=environment.driver,
            kernelyard_version=environment.kernelyard,
            commit=environment.commit,
            provider_version=None if is_ours(backend) else version_of(backend),
            **{**_UNKNOWN, **others},
        )

    def _fail(self, backend: str, reason: str) -> None:
        failure = (self.operator.name, backend, self.mode, reason)
        if failure not in self.run.failures:
            self.run.say(f"{backend}: {self.mode.value} on {self.point.workload.label}: {reason}; no row")
        self.run.failures.add(failure)


_UNKNOWN = dict.fromkeys(("copy_gbps", "floor_ms", "percent_of_floor", "datasheet_gbps"))


def _copy(size: int, device: torch.device) -> Call:
    """A copy that reads half of `size` bytes and writes the other half."""
    source = torch.ones(max(size // 2, 1), dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)
