"""Time calls against one another: interleaved in random order, cold cache, every sample kept."""

import random
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import torch

from kernelyard.core.cold_cache import ColdCache
from kernelyard.core.launches import Unseen, launches
from kernelyard.core.verdict import Timing

Call = Callable[[], object]

MIN_SAMPLES, MAX_SAMPLES = 7, 200
BUSY_CALLS = 3
# The host's time of one call: a loop of each in a round, and the quicker half of the rounds. A core has two speeds, by
# what its other thread does: a softmax took 7.5 or 11 us, milliseconds on end, and by the median of seven loops of 2 ms
# it was 0.9 to 1.4 times torch's on an H100's host, where their 20th percentiles agreed within 6 %. 50 launches fit a
# GPU's queue of 1024 with room for calls of several kernels, so that the host never waits; calls that are slow by
# themselves (an interpreter) get shorter loops and fewer rounds.
HOST_CALLS, HOST_LOOP_SECONDS = 50, 0.001
HOST_ROUNDS, LEAST_HOST_ROUNDS, HOST_SECONDS = 60, 7, 2.0


def timer_of(device: torch.device) -> str:
    """The clock used on a device, as records name it."""
    return "cuda_event" if device.type == "cuda" else "host"


def interleaved(
    calls: Mapping[str, Call],
    device: torch.device,
    *,
    seconds: float = 1.0,
) -> dict[str, Timing]:
    """Milliseconds of each call, by name. All are warmed up, then sampled in rounds, in random order within a round.

    Every call is sampled for about `seconds`: a slow one sits out rounds, evenly spread, where a fast one is due.

    The clock is the device's own events where it has them (the flush before the call keeps the queue busy for longer
    than the host needs to enqueue the call, so its gaps stay out), the host's monotonic clock elsewhere.
    """
    cold = ColdCache(device)
    sample = _event_sample if device.type == "cuda" else _host_sample
    counts: dict[str, int] = {}
    passes: dict[str, int] = {}
    for name, call in calls.items():
        call()
        sample(call, cold, device, cold.passes)
        passes[name] = cold.outlasting(max(_busy(call, device) for _ in range(BUSY_CALLS)))
        once = _settle(call, cold, device, sample, passes[name])
        counts[name] = max(MIN_SAMPLES, min(MAX_SAMPLES, int(seconds / max(once, 1e-9))))
    rounds = max(counts.values())
    samples: dict[str, list[float]] = {name: [] for name in calls}
    shuffle = random.Random(0).shuffle
    for i_round in range(rounds):
        due = [name for name, count in counts.items() if (i_round + 1) * count // rounds > i_round * count // rounds]
        shuffle(due)
        pending = [(name, sample(calls[name], cold, device, passes[name])) for name in due]
        _synchronize(device)
        for name, read in pending:
            samples[name].append(read())
    return {
        name: Timing(samples_ms=tuple(values), timer=timer_of(device), cache="cold") for name, values in samples.items()
    }


def host_times(calls: Mapping[str, Call], device: torch.device) -> dict[str, Timing]:
    """Milliseconds that the host is busy with each call in inference, by name; nothing waits for the device.

    Loops of many calls, the calls' loops in random order within a round; a sample is a loop's mean. Samples are of the
    quicker half of the rounds, the same for every call.
    """
    lengths: dict[str, int] = {}
    order = list(calls)
    shuffle = random.Random(0).shuffle
    taken: list[dict[str, float]] = []
    with torch.inference_mode():
        for name, call in calls.items():
            call()
            once = _loop(call, 3, device)
            lengths[name] = max(1, min(HOST_CALLS, int(1e3 * HOST_LOOP_SECONDS / once)))
            _loop(call, lengths[name], device)
        begin = time.perf_counter_ns()
        while len(taken) < HOST_ROUNDS:
            if len(taken) >= LEAST_HOST_ROUNDS and time.perf_counter_ns() - begin > 1e9 * HOST_SECONDS:
                break
            shuffle(order)
            taken.append({name: _loop(calls[name], lengths[name], device) for name in order})
    least = {name: min(samples[name] for samples in taken) for name in calls}
    taken.sort(key=lambda samples: sum(samples[name] / least[name] for name in calls))
    quicker = taken[: (len(taken) + 1) // 2]
    return {
        name: Timing(samples_ms=tuple(samples[name] for samples in quicker), timer="host", cache="warm")
        for name in calls
    }


def _loop(call: Call, count: int, device: torch.device) -> float:
    """Milliseconds a call, from an idle device on."""
    _synchronize(device)
    begin = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - begin) / 1e6 / count


def _busy(call: Call, device: torch.device) -> float:
    """Seconds that the host takes to enqueue a call on an idle device."""
    _synchronize(device)
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _settle(
    call: Call, cold: ColdCache, device: torch.device, sample: Callable[..., Callable[[], float]], passes: int
) -> float:
    """Seconds that one sample takes, flush included."""
    begin = time.perf_counter()
    sample(call, cold, device, passes)
    _synchronize(device)
    return time.perf_counter() - begin


def _event_sample(call: Call, cold: ColdCache, device: torch.device, passes: int) -> Callable[[], float]:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.device(device):
        cold.flush(passes)
        start.record()
        call()
        end.record()
    return lambda: start.elapsed_time(end)


def _host_sample(call: Call, cold: ColdCache, device: torch.device, passes: int) -> Callable[[], float]:
    cold.flush(passes)
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
        kept = _other_backward(device)
        torch.accelerator.synchronize(device)
        torch.accelerator.reset_peak_memory_stats(device)
        before = torch.accelerator.memory_allocated(device)
        result = call()
        torch.accelerator.synchronize(device)
        del result, kept
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


def _other_backward(device: torch.device) -> torch.Tensor:
    """What autograd's thread of the device does next lets go of the gradients that it found before; keep the tensor.

    It holds them for a moment longer than the call does: one backward of 671 MB in 1500 was told as 134, for the 537 of
    the call before went while it ran.
    """
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros(1, device=device, requires_grad=True)
        x.sum().backward()
    return x


def _resident(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/self/status has no {field}")
    return int(found.group(1)) * 1024


def count_kernels(call: Call, device: torch.device) -> int | None:
    """GPU kernels that one call launches; None on a CPU, and where they cannot be seen."""
    if device.type != "cuda":
        return None
    call()
    with suppress(Unseen):
        return len(launches(call, device).names)
    return None
