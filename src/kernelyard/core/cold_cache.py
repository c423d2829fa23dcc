"""Evicting the last-level cache before a timed call."""

import enum
import math

import torch

# The flush reads this many bytes: over twice the last-level cache of an H200 (60 MB) or an MI300X (256 MB). It reads
# and does not write, because dirty lines left behind would be written back during the timed call.
ACCELERATOR_FLUSH_BYTES = 512 << 20
# A CPU's share of its last-level cache cannot be known in a virtual machine; this bounds the cost of a flush to 10 ms.
CPU_FLUSH_BYTES = 64 << 20
# On an accelerator the flush also hides the launch of the timed call, which the host enqueues meanwhile. After an idle
# spell a Triton launch took 0.2 ms on an H100 machine; one pass takes 0.18 ms there, so there are three.
ACCELERATOR_PASSES, PASS_SECONDS = 3, 0.18e-3
# A call that keeps its host for longer stands behind more passes, twice as long as it took at worst: with three, 15 of
# rowsum's 90 cells had medians of 1.3 to 6 times their 20th percentile on one H100's host, where a step of autograd
# takes half a millisecond now and then. A host that takes 2 ms is left to its gaps.
HEADROOM, MOST_PASSES = 2.0, 24
# 1.4 ms there; a call of Python's that launches a kernel takes 0.3 ms at most.
OCCUPYING_PASSES = 8
# What the driver answers where no lines persist any longer: success, and that the device knows no such lines.
DONE = (0, 801)


class ColdCache:
    """Evicts the last-level cache by reading a buffer larger than it."""

    def __init__(self, device: torch.device) -> None:
        size = CPU_FLUSH_BYTES if device.type == "cpu" else ACCELERATOR_FLUSH_BYTES
        self.passes = 1 if device.type == "cpu" else ACCELERATOR_PASSES
        self.buffer = torch.ones(size // 4, dtype=torch.int32, device=device)

    def flush(self, passes: int | None = None) -> None:
        """`passes`: reads of the buffer, as `outlasting` counts them; without, what hides an ordinary launch."""
        if self.buffer.is_cuda:
            _let_go(self.buffer.device)
        for _ in range(self.passes if passes is None else passes):
            self.evict()

    def outlasting(self, host_seconds: float) -> int:
        """Passes that keep a device busy while its host enqueues a call for so long."""
        if self.buffer.device.type == "cpu":
            return self.passes
        return max(self.passes, min(MOST_PASSES, math.ceil(HEADROOM * host_seconds / PASS_SECONDS)))

    def occupy(self) -> None:
        """A millisecond of reads on an H100, for whatever is enqueued next to stand behind."""
        for _ in range(OCCUPYING_PASSES):
            self.evict()

    def evict(self) -> None:
        """One pass: it evicts whatever no kernel has pinned, which `flush` sees to."""
        if self.buffer.device.type == "cpu":
            # In one thread: torch's others would go on to spin, each on a core that the timed call needs. Behind them a
            # softmax of 0.50 ms took 0.62.
            self.buffer.numpy().max()
        else:
            self.buffer.max()


def _let_go(device: torch.device) -> None:
    """Turn lines that a kernel pinned in the L2 into ordinary ones, which a read evicts. Raises RuntimeError where the
    driver does not.

    A persisting window kept data hot through another project's flush: 3530 "GB/s" on a card of 864 (llm.c, issue 851).
    """
    if _reset_persisting() in DONE:
        return
    # A thread that has asked the device for nothing yet has no context; what is wrong with the device is said here too.
    torch.cuda.synchronize(device)
    if (said := _reset_persisting()) not in DONE:
        raise RuntimeError(
            f"the driver does not reset the L2's persisting lines, which no timing can do without: {said!r}"
        )


def _reset_persisting() -> enum.IntEnum | int:
    """What the driver says to it; of ROCm, which has no such lines, nothing."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return 0
    (said,) = driver.cuCtxResetPersistingL2Cache()
    return said
