"""Whatever a worker sends, the judge's side raises what is documented, and nothing else."""

import contextlib
import json
import math
import mmap
import os
import resource
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernelyard.sandbox.frames import MAX_FRAME, Channel, Closed, ProtocolError
from kernelyard.sandbox.session import LONGEST_MS, SHORTEST_MS
from kernelyard.sandbox.wire import (
    MAX_OUTPUT_NAME,
    MOST_OWNERS,
    WIRE_DTYPES,
    OutputSpec,
    Reply,
    SharedBytes,
    TensorSpec,
    flatten,
    layout,
    unflatten,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)
REPLY_KEYS = st.sampled_from([*Reply.model_fields, "status", "speedup", "verdict"])
CPU = torch.device("cpu")


@contextlib.contextmanager
def channels() -> Iterator[tuple[Channel, socket.socket]]:
    """The judge's end and a stranger's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        yield Channel(ours), theirs


def receive(sent: bytes, seconds: float = 5.0) -> dict[str, object] | None:
    """What the judge makes of `sent` and the end of the stream: a message, or None where it refuses."""
    with channels() as (channel, stranger):
        stranger.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            stranger.sendall(sent)
        stranger.shutdown(socket.SHUT_WR)
        try:
            message, fd = channel.receive(time.monotonic() + seconds)
        except (Closed, ProtocolError):
            return None
        assert fd is None
        return message


def framed(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_or_an_object(sent: bytes) -> None:
    assert receive(sent) is None or sent[4:5].isspace() or sent[4:5] == b"{"


@given(st.binary(max_size=300))
def test_a_frame_of_arbitrary_bytes_is_refused_or_an_object(body: bytes) -> None:
    message = receive(framed(body))
    assert message is None or message == json.loads(body)


@given(JSON)
def test_any_json_is_taken_as_it_is_or_refused(value: object) -> None:
    body = json.dumps(value).encode()
    message = receive(framed(body))
    assert (message is not None) == isinstance(value, dict)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=100))
def test_a_length_that_lies_is_refused(length: int, rest: bytes) -> None:
    if length <= len(rest):
        return
    assert receive(struct.pack("!I", length) + rest) is None


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"[[{"])
def test_nesting_as_deep_as_a_frame_is_refused(opening: bytes) -> None:
    with channels() as (channel, stranger):
        body = opening * ((MAX_FRAME - 8) // len(opening))
        with contextlib.suppress(BlockingIOError):
            stranger.settimeout(1)
            sender = threading.Thread(target=stranger.sendall, args=(framed(body),))
            sender.start()
            with pytest.raises(ProtocolError):
                channel.receive(time.monotonic() + 30)
            sender.join()


def test_numbers_as_long_as_a_frame_are_refused() -> None:
    """Python refuses to read integers of over 4300 digits, which is a ValueError."""
    assert receive(framed(b'{"a": ' + b"9" * 100_000 + b"}")) is None


def test_half_a_frame_is_waited_for_until_the_deadline() -> None:
    with channels() as (channel, stranger):
        stranger.sendall(b"\x00\x00\x00\x10{")
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.receive(begin + 0.2)
        assert time.monotonic() - begin < 5


def test_a_drop_at_a_time_does_not_move_the_deadline() -> None:
    """A worker that sends a byte now and then must not be able to stretch its time."""
    with channels() as (channel, stranger):

        def drip() -> None:
            with contextlib.suppress(OSError):
                for byte in framed(b" " * 1000):
                    stranger.sendall(bytes([byte]))
                    time.sleep(0.02)

        thread = threading.Thread(target=drip)
        thread.start()
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.receive(begin + 0.3)
        assert time.monotonic() - begin < 5
        channel.socket.close()
        thread.join()


@given(st.dictionaries(REPLY_KEYS, JSON, max_size=5))
def test_a_reply_is_valid_or_refused(message: dict[str, object]) -> None:
    try:
        reply = Reply.model_validate(message)
    except ValidationError:
        return
    assert set(message) <= set(Reply.model_fields)
    assert len(reply.nonce) <= 64
    # Nothing of a reply is a verdict: there is no field for one.
    assert not {"status", "speedup", "verdict", "time"} & set(Reply.model_fields)


@given(st.floats(), st.floats())
def test_a_sample_that_is_no_time_is_not_within_the_bounds(event: float, host: float) -> None:
    """What Session.run holds every pair against; NaN and infinities fail it."""
    reply = Reply.model_validate({"nonce": "n", "samples": [[event, host]]})
    taken = all(SHORTEST_MS <= sample < LONGEST_MS for pair in reply.samples for sample in pair)
    assert taken == all(math.isfinite(value) and 1e-6 <= value < 1e9 for value in (event, host))


@pytest.mark.parametrize("kind", ["pipe", "socket", "file", "directory", "memfd"])
@pytest.mark.parametrize("count", [1, 2, 30])
def test_descriptors_that_nobody_asked_for_do_not_stay(kind: str, count: int) -> None:
    with channels() as (channel, stranger), contextlib.ExitStack() as opened:

        def one() -> int:
            if kind == "pipe":
                read, write = os.pipe()
                opened.callback(os.close, write)
                return read
            if kind == "socket":
                return opened.enter_context(socket.socket()).detach()
            if kind == "memfd":
                return os.memfd_create("stranger")
            if kind == "file":
                return os.dup(opened.enter_context(tempfile.TemporaryFile()).fileno())
            return os.open("/", os.O_RDONLY)

        theirs = [one() for _ in range(count)]
        for descriptor in theirs:
            opened.callback(os.close, descriptor)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        socket.send_fds(stranger, [framed(b"{}")], theirs)
        try:
            _, fd = channel.receive(time.monotonic() + 5)
            if fd is not None:
                os.close(fd)
        except ProtocolError:
            pass
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize("sent", [framed(b'{"a": 1}'), framed(b"no"), struct.pack("!I", MAX_FRAME + 1), b"\0\0\0\2{"])
@pytest.mark.parametrize("every", [1, 4, 100])
@pytest.mark.parametrize("hung_up", [False, True])
def test_descriptors_that_come_with_the_bytes_of_a_frame_do_not_stay(sent: bytes, every: int, *, hung_up: bool) -> None:
    """A descriptor can come with each byte; a frame has one, and whoever is told of no frame has none."""
    with channels() as (channel, stranger):
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        for index in range(len(sent)):
            socket.send_fds(stranger, [sent[index : index + 1]], [] if index % every else [stranger.fileno()])
        if hung_up:
            stranger.shutdown(socket.SHUT_WR)
        fd = None
        with contextlib.suppress(Closed, ProtocolError, TimeoutError):
            message, fd = channel.receive(time.monotonic() + 0.1)
            assert message == {"a": 1} and fd is not None and every == 100
            os.close(fd)
        assert (fd is not None) == (sent == framed(b'{"a": 1}') and every == 100)
        channel.socket.close()
        assert len(os.listdir("/proc/self/fd")) == before - 1  # noqa: PTH208


def test_a_frame_is_sent_until_the_deadline() -> None:
    """Not that of what was received before."""
    with channels() as (channel, _):
        channel.socket.settimeout(30)
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.send({"a": "b" * (MAX_FRAME - 100)}, deadline=begin + 0.2)
        with pytest.raises(TimeoutError):
            channel.send({}, deadline=begin)
        assert time.monotonic() - begin < 5


@given(st.sampled_from(sorted(WIRE_DTYPES)), st.lists(st.integers(-2, 5), max_size=4), st.integers(0, 300))
def test_a_tensor_outside_of_its_memory_is_refused(dtype: str, shape: list[int], offset: int) -> None:
    shared = SharedBytes.create(256, worker_may_write=True)
    try:
        size = WIRE_DTYPES[dtype].itemsize
        inside = math.prod(shape) * size + offset <= 256 and offset % size == 0 and min(shape, default=0) >= 0
        with contextlib.nullcontext() if inside else pytest.raises(ProtocolError):
            assert shared.read(TensorSpec(dtype=dtype, shape=tuple(shape), offset=offset), CPU).shape == tuple(shape)
    finally:
        shared.close()


def test_numbers_too_large_for_a_machine_are_refused() -> None:
    shared = SharedBytes.create(256, worker_may_write=True)
    for shape, offset in (((1 << 62, 4), 0), ((1 << 200,), 0), ((1,), 1 << 80)):
        with pytest.raises(ProtocolError):
            shared.read(TensorSpec(dtype="float32", shape=shape, offset=offset), CPU)
    shared.close()


FORMS = st.fixed_dictionaries(
    {
        "containers": st.lists(
            st.tuples(st.sampled_from(["list", "tuple", "dict", "set"]), st.integers()), max_size=70
        ),
        "memory_of": st.lists(st.text(max_size=300), max_size=2 * MOST_OWNERS),
    }
)


@given(FORMS)
def test_how_outputs_hang_together_is_bounded(form: dict[str, list[Any]]) -> None:
    containers, owners = form["containers"], form["memory_of"]
    bounded = (
        len(containers) <= 64
        and all(kind != "set" and 0 <= size <= 10**9 for kind, size in containers)
        and len(owners) <= MOST_OWNERS
        and all(len(owner) <= MAX_OUTPUT_NAME for owner in owners)
    )
    with contextlib.nullcontext() if bounded else pytest.raises(ValidationError):
        described = OutputSpec.model_validate({"name": "output", "kind": "Tensor", **form})
        assert described.containers == tuple(containers) and described.memory_of == tuple(owners)


@given(st.dictionaries(st.sampled_from([*TensorSpec.model_fields, *OutputSpec.model_fields]), JSON))
def test_a_description_is_valid_or_refused(fields: dict[str, object]) -> None:
    for record in (TensorSpec, OutputSpec):
        with contextlib.suppress(ValidationError):
            record.model_validate(fields)


@given(JSON.filter(lambda value: not isinstance(value, float)))
def test_what_is_flattened_comes_back(value: object) -> None:
    tensors: list[torch.Tensor] = []
    assert unflatten(flatten([value, torch.ones(2)], tensors), tensors)[0] == value


def test_a_layout_never_overlaps() -> None:
    specs, size = layout([torch.ones(n, dtype=dtype) for n in (0, 1, 63) for dtype in (torch.int8, torch.float64)])
    ends = [spec.offset + math.prod(spec.shape) * WIRE_DTYPES[spec.dtype].itemsize for spec in specs]
    assert all(end <= spec.offset for end, spec in zip(ends, [*specs[1:]], strict=False)) and ends[-1] <= size


@pytest.mark.parametrize("at_once", [True, False])
def test_memory_for_answers_is_mapped_before_anything_is_written_to_it(at_once: bool) -> None:
    """By a worker, in its own process: 4 MB cost a timed call 0.9 ms of faults on a CPU."""
    pages = 1024
    shared = SharedBytes.create(pages * mmap.PAGESIZE, worker_may_write=True)
    shared.poison()
    received = SharedBytes.received(os.dup(shared.fd), writable=True, at_once=at_once)
    there = torch.frombuffer(received.memory, dtype=torch.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    there.fill_(1)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < pages / 20 if at_once else faults > pages / 20
    del there
    received.close()
    shared.close()
