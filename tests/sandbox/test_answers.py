"""What a session makes of a worker that is no worker: a thread at the other end of the socket."""

import os
import threading
import time
from typing import Any

import pytest
from strangers import ONE, met

from kernelyard.core.verdict import Status
from kernelyard.judge.statistics import paired_ratio
from kernelyard.sandbox import exchange
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.session import LONGEST_MS, SHORTEST_MS


def ended(fields: dict[str, Any], fd: int | None = None) -> Ended | None:
    """How a run ends that is answered with `fields`; None for one that goes on."""
    with met() as (session, stranger):
        thread = threading.Thread(target=stranger.answer, args=(fields, fd))
        thread.start()
        try:
            session.run(ONE)
        except Ended as end:
            assert stranger.process.killed
            return end
        finally:
            thread.join()
    return None


def test_who_does_not_read_has_the_deadline_and_no_more() -> None:
    """Whatever an earlier request's was."""
    with met(0.5) as (session, stranger):
        session.channel.socket.settimeout(3)
        begin = time.monotonic()
        with pytest.raises(Ended, match=r"no answer within 0.5 s in phase check") as raised:
            session.run(ONE * 10_000)
        assert raised.value.status is Status.TIMEOUT and stranger.process.killed
        assert 0.4 < time.monotonic() - begin < 2.5


def test_a_request_is_not_held_to_the_deadline_of_the_last() -> None:
    with met() as (session, stranger):
        session.channel.socket.settimeout(0.01)
        read = threading.Timer(0.3, stranger.answer, ({"samples": [[1.0, 1.0]] * 4000}, None))
        read.start()
        assert len(session.run(ONE * 4000).samples) == 4000
        read.join()


@pytest.mark.parametrize("sample", [1e-306, SHORTEST_MS / 2, 0.0, -1.0, LONGEST_MS])
def test_a_sample_that_is_no_time_is_refused(sample: float) -> None:
    for pair in ([sample, 1.0], [1.0, sample]):
        end = ended({"samples": [pair]})
        assert end is not None and end.status is Status.REJECTED and "no time" in end.message


def test_what_is_a_time_has_a_ratio() -> None:
    """Also where the candidate says which: the widest interval is that of two rounds that say the opposite."""
    assert ended({"samples": [[SHORTEST_MS, LONGEST_MS / 2]]}) is None
    ratio = paired_ratio([SHORTEST_MS, LONGEST_MS], [LONGEST_MS, SHORTEST_MS])
    assert 0 < ratio.low < ratio.high


@pytest.mark.parametrize("count", [-5, 0, 10**6 + 1, pytest.param(int("9" * 4300), id="4300 digits")])
def test_a_number_of_launches_that_is_none_is_refused(count: int) -> None:
    end = ended({"samples": [[1.0, 1.0]], "kernels": [["a", 1], ["b", count]]})
    assert end is not None and end.status is Status.REJECTED and "1 fields" in end.message


@pytest.mark.parametrize("fields", [{"samples": "none"}, {"nonce": "another"}, {"nonce": "\xe9"}, {}])
def test_a_descriptor_of_an_answer_that_is_refused_does_not_stay(fields: dict[str, Any]) -> None:
    read, write = os.pipe()
    os.close(write)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for fd in (None, read) if fields else (read,):
        end = ended(fields, fd)
        assert end is not None and end.status is Status.REJECTED and "broke the protocol" in end.message
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    os.close(read)


def test_what_the_judge_does_by_itself_is_not_on_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It words a request before and reads the answer after: on a clock that bounds a call they were a quarter."""

    def slowly(call: Any) -> Any:
        def slow(*arguments: Any) -> Any:
            time.sleep(0.2)
            return call(*arguments)

        return slow

    monkeypatch.setattr(exchange, "framed", slowly(exchange.framed))
    monkeypatch.setattr(exchange, "message_of", slowly(exchange.message_of))
    with met() as (session, stranger):
        thread = threading.Thread(target=stranger.answer, args=({"samples": [[1.0, 1.0]]}, None))
        thread.start()
        begin = time.monotonic()
        assert session.run(ONE).seconds < 0.1 < 0.4 < time.monotonic() - begin
        thread.join()
