"""Evicting the last-level cache before a timed call."""

import torch

# The flush reads this many bytes: over twice the last-level cache of an H200 (60 MB) or an MI300X (256 MB). It reads
# and does not write, because dirty lines left behind would be written back during the timed call.
ACCELERATOR_FLUSH_BYTES = 512 << 20
# A CPU's share of its last-level cache cannot be known in a virtual machine; this bounds the cost of a flush to 10 ms.
CPU_FLUSH_BYTES = 64 << 20


class ColdCache:
    """Evicts the last-level cache by reading a buffer larger than it."""

    def __init__(self, device: torch.device) -> None:
        size = CPU_FLUSH_BYTES if device.type == "cpu" else ACCELERATOR_FLUSH_BYTES
        self.buffer = torch.ones(size // 4, dtype=torch.int32, device=device)

    def flush(self) -> None:
        self.buffer.max()
