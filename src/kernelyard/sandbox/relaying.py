"""The judge's side of a relay: what it asks of a worker, and what it believes of the answer."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernelyard.core.cold_cache import ColdCache
from kernelyard.sandbox.clearing import seconds_until_clear
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.device_memory import DeviceBytes, Shared
from kernelyard.sandbox.exchange import Ended, Exchange
from kernelyard.sandbox.pool import Worker
from kernelyard.sandbox.relay import ALIGNED, HEADER, Course, let_go
from kernelyard.sandbox.returned import Kept, Relayed, alike
from kernelyard.sandbox.wire import POISON, Reply, TensorSpec, dumped, flattened, layout, layout_of_groups

# How long a relay's calls may take to be enqueued: a hundred launches each do in milliseconds.
ENQUEUED_SECONDS = 0.5
# Room for a relay's answers and what lies between a model's kernels, in answers; and at least so much, for an
# allocator's pieces are up to 20 MB.
ROOM, LEAST_ROOM = 4, 128 << 20


class Relaying(Exchange):
    """An exchange in which the device can be handed over, too."""

    def __init__(self, worker: Worker, device: torch.device, deadlines: Deadlines) -> None:
        super().__init__(worker, device, deadlines)
        self._inputs: tuple[Shared, list[list[TensorSpec]]] | None = None
        """Where the last calls' inputs lie, by call, which the worker had no copies of."""
        self._course: tuple[DeviceBytes, int] | None = None
        """Of the next relay: the memory, and what the first call's words are to be."""

    def relay(
        self, sets: Sequence[Sequence[Any]], answer: Sequence[Tensor], keep: Sequence[int], cold: ColdCache
    ) -> Relayed | None:
        """Hand the device to the candidate for a call on each set of arguments, and have it back (`sandbox.relay`).

        None where the candidate waits for the device within its calls, or where there are more launches than a device's
        queue holds, so that they cannot all be enqueued before the first of them may run. `answer`: tensors like those
        of one call; `keep`: calls whose outputs are the judge's before the next one's inputs are written.
        """
        trees, tensors = flattened(sets)
        grouped, size = layout_of_groups(tensors, HEADER)
        own_specs, slot = layout(answer)
        begin = -(-(HEADER + size) // ALIGNED) * ALIGNED
        memory = self.lender.both_write(begin + max(LEAST_ROOM, ROOM * len(sets) * slot))
        if self._course is None or self._course[0] is not memory:
            memory.clear(HEADER)
            self._course = memory, 1
        first, self._course = self._course[1], None  # until the device is back
        request = self._worded(
            "relay", memory, arguments=trees, tensors=dumped(grouped), uncopied=True, first=first, room=begin
        )
        self._take_inputs_back()
        if pause := seconds_until_clear(self.device):
            time.sleep(pause)
        self._put(request)
        are_enqueued = self.channel.is_readable(ENQUEUED_SECONDS)
        try:
            if not are_enqueued:
                let_go(memory)
            reply = self._understood(self._heard(), request.nonce)
        except Ended:
            let_go(memory)
            raise
        if not are_enqueued:
            self._understood(self._heard(), request.nonce)
            return None
        rooms = {i: torch.full((slot,), POISON, dtype=torch.uint8, device=self.device) for i in keep}
        outputs = {i: self._places(reply, i, memory, own_specs, rooms[i]) for i in keep}
        course = Course(memory, cold, first)
        course.enqueue([list(zip(*pair, strict=True)) for pair in zip(grouped, tensors, strict=True)], outputs)
        self._inputs = memory, grouped
        with self._in_time() as deadline:
            if not course.wait(deadline, self.channel.is_readable):
                let_go(memory)
                if time.monotonic() > deadline:
                    raise TimeoutError
                self.channel.receive_body(deadline)  # the worker's death, if that is what there is to read
                raise self._broken("calls that end without a word on the device")
        self._understood(self._heard(), request.nonce)
        self._course = memory, first + len(sets)
        kept = tuple(Kept(i, reply.delivered[i].outputs, rooms[i], reply.delivered[i].written) for i in keep)
        return Relayed(course.milliseconds(), kept)

    def _places(
        self, reply: Reply, call: int, memory: DeviceBytes, like: Sequence[TensorSpec], room: Tensor
    ) -> list[tuple[int, Tensor]]:
        """Where a call's outputs will lie, if they are as expected, and the part of `room` for each. One may lie in an
        input."""
        if len(reply.delivered) <= call or len(reply.placed) <= call:
            raise self._broken("a relay's calls without their outputs")
        delivered, placed = reply.delivered[call], reply.placed[call]
        if not delivered.written or not alike(like, delivered.outputs) or len(placed) != len(like):
            return []
        if any(
            offset < HEADER or offset + spec.nbytes > memory.size for spec, offset in zip(like, placed, strict=True)
        ):
            raise self._broken("an output beyond the memory that was lent for it")
        return [(offset, room[spec.offset : spec.end]) for spec, offset in zip(like, placed, strict=True)]

    def _take_inputs_back(self) -> None:
        if self._inputs is not None:
            self._inputs[0].let_go()
            self._inputs = None
