"""The memory in which tensors cross between judge and worker: the device's where both can map it, else the host's.

On a device, pieces of up to `KEPT_BYTES`, and where there is room of any size, stay mapped on both sides from one
transfer to the next.
"""

import contextlib

import torch

from kernelyard.sandbox.clearing import empty_cache
from kernelyard.sandbox.device_memory import KEPT_BYTES, DeviceBytes, DriverError, Shared
from kernelyard.sandbox.wire import SharedBytes


class Lender:
    """One session's. `close` it when the worker has ended."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.on_device = False
        """Whether both sides have agreed on memory of the device."""
        self.keeps = True
        """Whether what fits `KEPT_BYTES` stays mapped; else each transfer has its own."""
        self.roomy = False
        """Whether the device holds all that crosses beside what either side holds: then pieces of any size stay mapped,
        and nobody need give memory back between two transfers."""
        self.crossed = 0
        """Bytes of inputs and answers of the largest timed request that the worker has answered: it has the memory for
        as large a one."""
        self._kept: dict[str, DeviceBytes] = {}
        self._given: set[DeviceBytes] = set()

    def lend(self, size: int, *, worker_may_write: bool, timed: bool) -> Shared:
        """Memory for one transfer. What the worker may write to holds nothing yet that could pass for its answer.

        Raises torch.OutOfMemoryError where the device has no room and the transfer is `timed`: through the host it
        takes seconds, and a solution that left the baseline no room would look fast. Others go through the host then.
        """
        if self.on_device:
            try:
                place = "outputs" if worker_may_write else "inputs"
                if not self.roomy and place in self._kept and self._kept[place].is_large:
                    self._drop(place)
                if self.roomy or (self.keeps and size <= KEPT_BYTES):
                    return self._keep(place, size)
                return self._create(size)
            except (torch.OutOfMemoryError, DriverError) as error:
                if timed:
                    raise torch.OutOfMemoryError(str(error)) from error
        made = SharedBytes.create(size, worker_may_write=worker_may_write)
        if worker_may_write:
            made.poison()
        return made

    def both_write(self, size: int) -> DeviceBytes:
        """Memory of the device that judge and worker write to in turn, mapped on both sides for good."""
        return self._keep("relay", size)

    def descriptor(self, shared: Shared) -> int | None:
        """What is to be sent with a request; None where the worker has it mapped."""
        return None if shared in self._given else shared.fd

    def sent(self, shared: Shared) -> None:
        """The worker maps it now, and if it is kept, for good."""
        if isinstance(shared, DeviceBytes) and shared.kept:
            self._given.add(shared)

    @property
    def kept_bytes(self) -> int:
        """Of a device, what stays mapped."""
        return sum(memory.size for memory in self._kept.values())

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for memory in self._kept.values():
                stack.callback(memory.close)
        self._kept.clear()

    def _keep(self, place: str, size: int) -> DeviceBytes:
        """Memory for `size` bytes that the worker has mapped since it first had need of as much."""
        kept = self._kept.get(place)
        if kept is not None and kept.size >= size:
            if place == "outputs":
                kept.poison(size)
            return kept
        if kept is not None:
            self._drop(place)
        try:
            # With room to grow, so that inputs of other shapes need no new memory.
            kept = DeviceBytes.create(max(size, min(2 * size, KEPT_BYTES)), self.device)
        except torch.OutOfMemoryError:
            kept = self._create(size)
        kept.kept = True
        self._kept[place] = kept
        return kept

    def _drop(self, place: str) -> None:
        """The worker does the same when it gets what comes next to this place."""
        kept = self._kept.pop(place)
        self._given.discard(kept)
        kept.close()

    def _create(self, size: int) -> DeviceBytes:
        try:
            return DeviceBytes.create(size, self.device)
        except torch.OutOfMemoryError:
            # What this process's allocator keeps for itself is room as well.
            empty_cache(self.device)
            return DeviceBytes.create(size, self.device)
