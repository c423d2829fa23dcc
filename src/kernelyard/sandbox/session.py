"""The judge's side of one worker: one candidate, one life, a deadline for every request."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from kernelyard.core.cores import cores_from
from kernelyard.core.verdict import Phase, Status
from kernelyard.core.workload import dtype_name
from kernelyard.sandbox import tree
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.device_memory import DeviceBytes, Shared, supported
from kernelyard.sandbox.exchange import WentOn
from kernelyard.sandbox.pool import Worker
from kernelyard.sandbox.relaying import Relaying
from kernelyard.sandbox.returned import Fetched, Kept, Ran, Seen, alike
from kernelyard.sandbox.wire import (
    POISON,
    Manner,
    OutputSpec,
    SharedBytes,
    TensorSpec,
    dumped,
    flatten,
    flattened,
    layout,
    layout_of_groups,
)

# Between these a sample is a time. No call takes less than a nanosecond, and of ratios of less no float holds the
# interval's ends.
SHORTEST_MS, LONGEST_MS = 1e-6, 1e9


def build_environment(device: torch.device) -> dict[str, str]:
    """Variables that torch's builder would else ask the device for, which a compile worker does not have."""
    if device.type != "cuda" or torch.version.hip is not None:
        return {}
    major, minor = torch.cuda.get_device_capability(device)
    # From Hopper on, the fast instructions are in the architecture's own set.
    return {"TORCH_CUDA_ARCH_LIST": f"{major}.{minor}{'a' if major >= 9 else ''}"}


class Session(Relaying):
    """The one use of a worker. A context manager: leaving it ends every process of the candidate.

    Every method raises Ended when the worker fails, dies, lies about the protocol or outlives its deadline.
    """

    def __init__(self, worker: Worker, device: torch.device, deadlines: Deadlines) -> None:
        super().__init__(worker, device, deadlines)
        self._pending = worker.nonce
        self._mapping: tuple[DeviceBytes, str] | None = None
        self._loading: tuple[str, contextlib.ExitStack] | None = None
        """What `await_load` waits for, and the memory that went with it."""
        self._lent: Shared | None = None
        self._slot = 0
        self._team: list[int] = []
        """On a CPU the worker's first thread, and torch's others."""
        self._core: int | None = None
        """The one on which its first thread wakes up at each run."""
        self._close = worker.close

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.lender.close)
            stack.callback(self._take_back)
            stack.callback(self._take_inputs_back)
            if self._mapping is not None:
                stack.callback(self._mapping[0].close)
            if self._loading is not None:
                stack.callback(self._loading[1].close)
            self._close()

    def finish(self, seconds: float) -> str:
        """Hang up and let the worker end by itself; what it wrote to stdout."""
        self.channel.socket.close()
        self.process.wait(seconds)
        return self.process.stdout

    def begin_start(self) -> None:
        """Have the worker make its context on the device, 0.17 s on an H100, while the judge does something else."""
        if supported(self.device):
            sample = DeviceBytes.create(1, self.device)
            try:
                self._mapping = sample, self._send("map", sample)
            except BaseException:
                sample.close()
                raise

    def await_start(self, *, device_memory: bool = True) -> None:
        """Wait until the worker answers: the interpreter is up and torch imported.

        `device_memory`: agree with it, where both sides can, that tensors cross in memory of the device.
        """
        if device_memory and self._mapping is None:
            self.begin_start()
        self._hear_first_word()
        if self._mapping is not None:
            sample, nonce = self._mapping
            self.lender.on_device = self._await(nonce).written
            sample.close()
        if self.device.type == "cpu":
            self._gather()

    def is_started(self) -> bool:
        """Whether `await_start` would not have to wait, after `begin_start`."""
        if self._pending and self.channel.is_readable():
            self._hear_first_word()
        return not self._pending and (self._mapping is None or self.channel.is_readable())

    def _hear_first_word(self) -> None:
        """The worker's own, that it is up."""
        if self._pending:
            self._await(self._pending)
            self._pending = ""

    def _gather(self) -> None:
        """Have torch's other threads begin, to know which they are. There is no candidate yet."""
        before = self.process.threads()
        self._ask("gather")
        self._team = [min(before), *sorted(set(self.process.threads()) - set(before))]

    def build(self, file_name: str, source: str) -> bytes:
        """Import the source and hand back what torch built meanwhile, in `tree`'s form; empty for nothing."""
        self.phase = Phase.COMPILE
        shared = SharedBytes.create(tree.MAX_BYTES, worker_may_write=True)
        try:
            environment = build_environment(self.device)
            name = Path(file_name).name
            reply = self._ask("build", shared, file_name=name, source=source, environment=environment)
            # A copy: who still holds the memory cannot change what is looked at now.
            return shared.memory[: reply.built]
        finally:
            shared.close()

    def unpack(self, built: bytes) -> None:
        """Give the worker what was built of the source that it will load."""
        self.phase = Phase.LOAD
        shared = SharedBytes.create(len(built), worker_may_write=False)
        try:
            shared.memory[:] = built
            self._ask("unpack", shared)
        finally:
            shared.close()

    def begin_load(
        self,
        file_name: str,
        source: str,
        class_name: str,
        arguments: Sequence[Any],
        seed: int,
        dtype: torch.dtype,
        weights: Mapping[str, Tensor],
        *,
        train_mode: bool = False,
        libraries: bool = False,
    ) -> None:
        """Have the worker construct the class while the judge does something else; nothing is asked of it meanwhile.

        `libraries`: and begin the vendor's, lest its first call does.
        """
        self.phase = Phase.LOAD
        tensors: list[Tensor] = []
        tree = flatten(list(arguments), tensors)
        index = [(name, len(tensors) + i) for i, name in enumerate(weights)]
        with contextlib.ExitStack() as memory:
            shared, (specs,) = memory.enter_context(self._written([[*tensors, *weights.values()]]))
            nonce = self._send(
                "load",
                shared,
                file_name=Path(file_name).name,
                source=source,
                arguments=tree,
                tensors=dumped([specs])[0],
                seed=seed,
                environment=build_environment(self.device),
                device=self.device.type,
                dtype=dtype_name(dtype),
                weights=index,
                train_mode=train_mode,
                libraries=libraries,
                **{"class": class_name},
            )
            self._loading = nonce, memory.pop_all()

    def await_load(self) -> Literal["state_dict", "seed", "none"]:
        """Wait until it is constructed; returns how it got the weights."""
        assert self._loading is not None
        (nonce, memory), self._loading = self._loading, None
        with memory:
            return self._await(nonce).weights or "none"

    def load(self, *asked: Any, **how: Any) -> Literal["state_dict", "seed", "none"]:
        """Both, with what `begin_load` takes."""
        self.begin_load(*asked, **how)
        return self.await_load()

    def lend(self, like: Sequence[Tensor], calls: int) -> None:
        """Memory for all that the next run returns, tensors like `like` of each call: to be written before it answers.

        Who answers first and computes afterwards has then written nothing when the judge looks.
        """
        self._take_back()
        _, self._slot = layout(like)
        # Poisoned, and so touched, before the clock runs.
        self._lent = self._lend(calls * self._slot, worker_may_write=True)
        self._ask("lend", self._lent, slot=self._slot)

    def run(
        self,
        sets: Sequence[Sequence[Any]],
        *,
        manner: Manner = Manner.COLD,
        keep: Sequence[int] = (),
        before: Callable[[], None] = lambda: None,
    ) -> Ran:
        """Call the candidate once on every set of arguments.

        The worker gets them with this request and not before: all that it does with them passes on the judge's clock,
        which shows what a call can have taken at most. So nothing passes on it that could not be of use to a worker:
        the request is worded before, and when memory was lent the worker says first that all is written, then what.
        Of 0.36 ms beside a call on a CPU that was a third. Memory of a device, which the worker may have mapped
        already, is written when the clock runs.
        `keep`: calls whose outputs, written to memory that `lend` lent, are the judge's when its clock stops.
        `before` is called when the inputs lie ready, before the clock starts.
        """
        trees, tensors = flattened(sets)
        rooms = [torch.full((self._slot,), POISON, dtype=torch.uint8, device=self.device) for _ in keep]
        with self._room_for(tensors) as (shared, specs, write):
            if shared.where == "host":
                write()
            uncopied = _lies_on_device(shared) and manner is not Manner.LATE
            request = self._worded(
                "run", shared, arguments=trees, tensors=dumped(specs), manner=manner.value, uncopied=uncopied
            )
            if self._core is not None:
                # Until it has woken up there, and frees itself.
                self.process.keep_apart(self._team[:1], [self._core])
            before()
            begin = time.perf_counter()
            if shared.where == "device":
                write()
            if uncopied:
                self._inputs = shared, specs
            self._put(request)
            answer = self._heard()
            if self._lent is not None:
                # Within the clock: what a worker still does while it is read is timed as well.
                for index, room in zip(keep, rooms, strict=True):
                    self._lent.copy(index * self._slot, room)
                self._lent.settle()
            seconds = time.perf_counter() - begin
        reply = self._understood(answer, request.nonce)
        if self._lent is not None:  # that was the word that all is written, unless the candidate raised
            reply = self._understood(self._heard(), request.nonce)
        calls = len(sets)
        times = [sample for pair in reply.samples for sample in pair]
        if len(reply.samples) != calls or not all(SHORTEST_MS <= sample < LONGEST_MS for sample in times):
            raise self._broken(f"{len(reply.samples)} samples for {calls} calls, or one that is no time")
        if self._lent is not None and len(reply.delivered) != calls:
            raise self._broken(f"the outputs of {len(reply.delivered)} calls of {calls}")
        self._take_back()
        delivered = [reply.delivered[index] for index in keep]
        held = zip(keep, delivered, rooms, strict=True)
        kept = tuple(Kept(index, one.outputs, room, one.written) for index, one, room in held)
        return Ran(reply.samples, seconds, kept)

    @contextlib.contextmanager
    def still(self, otherwise: Status = Status.REJECTED) -> Iterator[None]:
        """Nothing of the worker runs inside: it is somebody else's turn. Raises WentOn with `otherwise` where something
        did. What its device was given before runs on."""
        with self.process.stopped() as went_on:
            yield
            reason = went_on()
        if reason:
            raise WentOn(otherwise, self.phase, reason)

    def move_to(self, core: int) -> None:
        """Have the worker's first thread, which launches, wake up on one core of the host's, on a CPU at each run.

        It stays there as long as nobody else wants it, and is free to go. On a CPU torch's other threads are held to
        the cores that follow. They sleep between calls, and a kernel that finds no idle core in time wakes two on one:
        on two cores a softmax of 0.62 ms took 0.95 so, for many calls in a row, in either worker, and of 15 verdicts on
        the same code 3 were `faster`.
        """
        if self.device.type == "cpu":
            self._core = core
            self.process.keep_apart(self._team[1:], cores_from(core)[1:])
        else:
            with self.process.on_core(core):
                self._ask("ping")

    def scatter(self) -> None:
        """Have the worker's memory lie elsewhere from now on, as far as its device's allocator can be moved."""
        self._ask("scatter")

    def hold(self, index: int | None) -> None:
        """Have the worker hold on to what call `index` of the last run returned, as whoever asked for it would; to
        nothing with None."""
        self._ask("hold", index=index)

    def forget(self) -> None:
        """Have the worker let go of what it was given for the last run, and of what it returned."""
        self._ask("forget")
        self._take_inputs_back()

    def launches(self, arguments: Sequence[Any]) -> Seen:
        """What one more call, on these arguments, launches, as the worker says."""
        trees, tensors = flattened([arguments])
        with self._written(tensors) as (shared, specs):
            uncopied = _lies_on_device(shared)
            reply = self._ask("profile", shared, arguments=trees, tensors=dumped(specs), uncopied=uncopied)
        return Seen(reply.kernels, reply.way or "profiler", reply.unseen)

    def inputs_are(self, index: int, pristine: Sequence[Tensor], same: Callable[[Tensor, Tensor], bool]) -> bool:
        """Whether the inputs of call `index` of the last run are now, by `same`, what they were.

        They are looked at where they lie, for a device may have no room for 8 GB more. A worker could write to them
        meanwhile; and where it had copies it could as well hand over others, that it had kept.
        """
        if self._inputs is not None:
            where, lying = self._inputs
            return all(map(same, map(where.view, lying[index]), pristine))
        with self._handed_over(index, pristine, "inputs") as (_, shared, specs):
            return specs is not None and all(map(same, map(shared.view, specs), pristine))

    def fetch(self, index: int, expected: Sequence[Tensor], what: Literal["outputs", "held"] = "outputs") -> Fetched:
        """The outputs of call `index` of the last run, or what is held; memory is lent for tensors like `expected`."""
        with self._handed_over(index, expected, what) as (outputs, shared, specs):
            copies = None if specs is None else tuple(shared.read(spec, self.device) for spec in specs)
            return Fetched(outputs, copies)

    @contextlib.contextmanager
    def _handed_over(
        self, index: int, expected: Sequence[Tensor], what: Literal["outputs", "inputs", "held"]
    ) -> Iterator[tuple[tuple[OutputSpec, ...], Shared, list[TensorSpec] | None]]:
        """What the worker says of these, the memory they lie in, and where; None where they are not as expected."""
        specs, size = layout(expected)
        shared = self._lend(size, worker_may_write=True)
        try:
            reply = self._ask("fetch", shared, index=index, what=what)
            yield reply.outputs, shared, specs if reply.written and alike(specs, reply.outputs) else None
        finally:
            shared.let_go()

    @contextlib.contextmanager
    def _written(self, groups: Sequence[Sequence[Tensor]]) -> Iterator[tuple[Shared, list[list[TensorSpec]]]]:
        """Memory with all of these tensors in it, and where each lies; it ends with the context."""
        with self._room_for(groups) as (shared, specs, write):
            write()
            yield shared, specs

    @contextlib.contextmanager
    def _room_for(
        self, groups: Sequence[Sequence[Tensor]]
    ) -> Iterator[tuple[Shared, list[list[TensorSpec]], Callable[[], None]]]:
        """Memory for all of these tensors, where each will lie, and what writes them."""
        self._take_inputs_back()
        grouped, size = layout_of_groups(groups)
        shared = self._lend(size, worker_may_write=False)

        def write() -> None:
            for specs, tensors in zip(grouped, groups, strict=True):
                for spec, tensor in zip(specs, tensors, strict=True):
                    shared.write(spec, tensor)
            shared.settle()

        try:
            yield shared, grouped, write
        finally:
            if self._inputs is None:
                shared.let_go()

    def _take_back(self) -> None:
        if self._lent is not None:
            self._lent.let_go()
            self._lent = None

    def _lend(self, size: int, *, worker_may_write: bool) -> Shared:
        return self.lender.lend(size, worker_may_write=worker_may_write, timed=self.phase is Phase.TIME)


def _lies_on_device(shared: Shared) -> bool:
    """Whether it is used where it lies: copies of gigabytes are what a device has no room for."""
    return isinstance(shared, DeviceBytes) and shared.is_large
