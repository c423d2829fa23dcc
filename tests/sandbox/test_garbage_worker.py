"""Whatever a worker answers, a question has an answer that keeps the protocol or the session ends; nothing else."""

import contextlib
import json
import math
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strangers import ONE, Stranger, met

from kernelyard.core.verdict import Status
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.frames import Closed, ProtocolError
from kernelyard.sandbox.session import LONGEST_MS, SHORTEST_MS, Session
from kernelyard.sandbox.wire import WIRE_DTYPES, Failure, Reply

LIKE = (torch.empty(3),)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=12)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
TIMES = st.floats(-1.0, 1e9) | st.sampled_from([0.5, math.inf, math.nan, 0.0, SHORTEST_MS, LONGEST_MS])
OUTPUT = st.fixed_dictionaries(
    {"name": st.sampled_from(["output", "", "\x00"]), "kind": st.sampled_from(["Tensor", "int", "Evil"])},
    optional={
        "dtype": st.sampled_from([*WIRE_DTYPES, "float7"]),
        "shape": st.just([3]) | st.lists(st.integers(-2, 2**63), max_size=3),
        "stride": st.just([1]) | st.lists(st.integers(-2, 2**63), max_size=3),
        "device": st.sampled_from(["cpu", "cuda", ""]),
        "storage_bytes": st.integers(-1, 2**63),
        "memory_of": st.lists(st.text(max_size=6), max_size=2),
    },
)
OUTPUTS = st.lists(OUTPUT, max_size=2)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "samples": st.just([[0.5, 0.5]]) | st.lists(st.tuples(TIMES, TIMES), max_size=2) | JSON,
        "outputs": OUTPUTS | JSON,
        "written": st.booleans() | JSON,
        "delivered": st.lists(st.fixed_dictionaries({"outputs": OUTPUTS, "written": st.booleans()}), max_size=2) | JSON,
        "failure": st.fixed_dictionaries({"kind": st.text(max_size=4), "message": st.text(max_size=4)})
        | st.fixed_dictionaries({"kind": st.just("runtime_error"), "message": st.text(max_size=4)}),
        "weights": st.sampled_from(["seed", "theirs"]),
        "kernels": st.lists(st.tuples(st.text(max_size=4), st.integers(-1, 5)), max_size=2) | JSON,
        "way": st.sampled_from(["profiler", "guess"]),
        "built": st.integers(-1, 2**40),
        "placed": st.lists(st.lists(st.integers(-1, 2**63), max_size=2), max_size=2),
        "verdict": st.just("passed"),
    },
)
# What keeps the protocol's form, so that it is read to its end.
FORMED = st.fixed_dictionaries(
    {},
    optional={
        "samples": st.just([[0.5, 0.5]]) | st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=2),
        "outputs": OUTPUTS,
        "written": st.booleans(),
        "delivered": st.lists(st.fixed_dictionaries({"outputs": OUTPUTS, "written": st.booleans()}), max_size=2),
    },
)
WELL_FORMED = st.tuples(st.just(True), FORMED)
ANSWERS = st.lists(WELL_FORMED, min_size=2, max_size=2) | st.lists(
    st.binary(max_size=40) | st.tuples(st.booleans(), FIELDS) | WELL_FORMED, min_size=1, max_size=2
)


def run(session: Session) -> None:
    ran = session.run(ONE)
    ((event, host),) = ran.samples
    assert min(event, host) >= SHORTEST_MS and max(event, host) < LONGEST_MS
    assert ran.kept == ()


def run_with_memory(session: Session) -> None:
    session.lend(LIKE, 1)
    (kept,) = session.run(ONE, keep=[0]).kept
    if kept.holds(LIKE):
        fetched = kept.fetched(LIKE)
        assert fetched is None or fetched.tensors is None or [one.shape for one in fetched.tensors] == [(3,)]


def fetch(session: Session) -> None:
    fetched = session.fetch(0, LIKE)
    assert fetched.tensors is None or [one.shape for one in fetched.tensors] == [(3,)]


def launches(session: Session) -> None:
    session.launches(ONE[0])


def load(session: Session) -> None:
    state = {"weight": torch.ones(2)}
    said = session.load("a.py", "", "ModelNew", [], 0, torch.float32, state, train_mode=False)
    assert said in ("state_dict", "seed", "none")


def _babble(stranger: Stranger, answers: list[Any]) -> None:
    """All of these answers to one question, and no more."""
    with contextlib.suppress(Closed, ProtocolError, TimeoutError, OSError):
        nonce = stranger.asked()
        for answer in answers:
            body = answer
            if not isinstance(answer, bytes):
                body = json.dumps({"nonce": nonce if answer[0] else "0" * 32, **answer[1]}).encode()
                body = struct.pack("!I", len(body)) + body
            stranger.end.socket.sendall(body)
    stranger.end.socket.close()


@pytest.mark.parametrize("question", [run, run_with_memory, fetch, launches, load])
def test_no_answer_does_more_than_end_the_session(question: Callable[[Session], None]) -> None:
    @settings(max_examples=max(300, settings.default.max_examples))
    @given(ANSWERS)
    def holds(answers: list[Any]) -> None:
        with met() as (session, stranger):
            thread = threading.Thread(target=_babble, args=(stranger, answers))
            thread.start()
            try:
                question(session)
            except Ended as end:
                own = end.status in (Status.RUNTIME_ERROR, Status.COMPILE_ERROR, Status.LOAD_ERROR)
                assert own or stranger.process.killed, end
                assert end.status is not Status.PASSED
            finally:
                stranger.close()
                thread.join()

    holds()


def test_what_a_worker_says_of_itself_is_only_to_its_harm() -> None:
    kinds = Failure.model_fields["kind"].annotation.__args__  # type: ignore[union-attr]
    assert Status.PASSED.value not in kinds and all(Status(kind) for kind in kinds)
    assert not Reply.model_fields.keys() & {"status", "speedup", "decision", "verdict"}
