"""Time calls against one another: interleaved in random order, cold cache, every sample kept."""

import random
import re
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from kernelyard.core.cold_cache import ColdCache
from kernelyard.core.verdict import Timing

Call = Callable[[], object]

MIN_ROUNDS, MAX_ROUNDS = 7, 200


def timer_of(device: torch.device) -> str:
    """The clock used on a device, as records name it."""
    return "cuda_event" if device.type == "cuda" else "host"


def interleaved(
    calls: Mapping[str, Call],
    device: torch.device,
    *,
    seconds: float = 1.0,
    on_round: Callable[[int, int], None] | None = None,
) -> dict[str, Timing]:
    """Milliseconds of each call, by name. All are warmed up, then rounds of all in random order fill `seconds` a call.

    The clock is the device's own events where it has them (the flush before the call keeps the queue busy, so the
    host's launch gap stays out unless it is longer than the flush), the host's monotonic clock elsewhere.
    """
    cold = ColdCache(device)
    sample = _event_sample if device.type == "cuda" else _host_sample
    longest = 0.0
    for call in calls.values():
        call()
        sample(call, cold, device)
        longest += _settle(call, cold, device, sample)
    rounds = max(MIN_ROUNDS, min(MAX_ROUNDS, int(seconds * len(calls) / max(longest, 1e-9))))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    shuffle = random.Random(0).shuffle
    for i_round in range(rounds):
        shuffle(order)
        pending = [(name, sample(calls[name], cold, device)) for name in order]
        _synchronize(device)
        for name, read in pending:
            samples[name].append(read())
        if on_round is not None:
            on_round(i_round + 1, rounds)
    return {
        name: Timing(samples_ms=tuple(values), timer=timer_of(device), cache="cold") for name, values in samples.items()
    }


def _settle(call: Call, cold: ColdCache, device: torch.device, sample: Callable[..., Callable[[], float]]) -> float:
    """Seconds that one sample takes, flush included."""
    begin = time.perf_counter()
    sample(call, cold, device)
    _synchronize(device)
    return time.perf_counter() - begin


def _event_sample(call: Call, cold: ColdCache, device: torch.device) -> Callable[[], float]:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.device(device):
        cold.flush()
        start.record()
        call()
        end.record()
    return lambda: start.elapsed_time(end)


def _host_sample(call: Call, cold: ColdCache, device: torch.device) -> Callable[[], float]:
    cold.flush()
    _synchronize(device)
    begin = time.perf_counter_ns()
    call()
    _synchronize(device)
    elapsed = (time.perf_counter_ns() - begin) / 1e6
    return lambda: elapsed


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def peak_memory(call: Call, device: torch.device) -> int | None:
    """Bytes that one warm call takes beyond what was held before it, its result included; None if not measurable.

    On a CPU this is the growth of the process's peak resident set, which Linux resets on request.
    """
    call()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
        torch.accelerator.reset_peak_memory_stats(device)
        before = torch.accelerator.memory_allocated(device)
        result = call()
        torch.accelerator.synchronize(device)
        del result
        return torch.accelerator.max_memory_allocated(device) - before
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _resident("VmRSS")
        result = call()
        peak = _resident("VmHWM")
    except OSError:
        return None
    del result
    # Resident memory moves in pages and arenas: no growth means too small to see, not nothing taken.
    return peak - before if peak > before else None


def _resident(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/self/status has no {field}")
    return int(found.group(1)) * 1024


def count_kernels(call: Call, device: torch.device) -> int | None:
    """GPU kernels, copies and fills that one call launches, from the profiler; None on a CPU."""
    if device.type != "cuda":
        return None
    call()
    torch.cuda.synchronize(device)
    with warnings.catch_warnings():
        # torch 2.11 warns about profiles of many cycles, which this is not.
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            call()
            torch.cuda.synchronize(device)
    kernels = [event for event in profile.events() if event.device_type is torch.autograd.DeviceType.CUDA]
    return len(kernels) or None
