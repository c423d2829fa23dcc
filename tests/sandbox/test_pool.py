"""Workers that wait: each is used once, a new one takes its place, none outlives the pool."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelyard.core.verdict import Status
from kernelyard.sandbox import pool as pools
from kernelyard.sandbox import processes
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.launch import SandboxedProcess, SandboxError, SandboxKind, launch
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Pool, Post, Worker
from kernelyard.sandbox.session import Session

SECONDS = 60.0


def pids(worker: Worker) -> list[int]:
    return processes.descendants(worker.process.pid)


def test_no_worker_is_given_twice_and_each_is_replaced(kind: SandboxKind) -> None:
    with Pool(Post(kind), size=1) as pool:
        taken = []
        for _ in range(3):
            assert pool.await_warm(SECONDS)
            taken.append(pool.take())
        assert len({worker.process.pid for worker in taken}) == 3
        assert len({worker.nonce for worker in taken}) == 3
        for worker in taken:
            worker.close()


def test_a_warm_worker_has_torch_and_answers_at_once(kind: SandboxKind) -> None:
    with Pool(Post(kind), size=1, replenish=False) as pool:
        assert pool.await_warm(SECONDS)
        with Session(pool.take(), torch.device("cpu"), Deadlines(start=1.0)) as session:
            session.await_start()


def test_threads_of_a_cpus_worker_sleep_while_they_wait_for_one_another(kind: SandboxKind) -> None:
    """Else two judged programs alike differ by half, as the one's threads have the other's cores."""
    with Pool(Post(kind), size=1, replenish=False) as pool:
        assert pool.await_warm(SECONDS)
        worker = pool.take()
        variables = [Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in pids(worker)]
        assert b"OMP_WAIT_POLICY=PASSIVE" in variables[-1]
        worker.close()


def test_a_worker_whose_keeper_fails_is_no_verdict(kind: SandboxKind) -> None:
    unlimited = replace(Limits(), memory_bytes=None)  # type: ignore[arg-type]
    session = Session(Worker.start(Post(kind, unlimited)), torch.device("cpu"), Deadlines())
    with session, pytest.raises(Ended, match="keeper failed") as ended:
        session.await_start()
    assert ended.value.status is Status.INFRA_ERROR


def test_the_pool_ends_those_that_nobody_took_and_no_other(kind: SandboxKind) -> None:
    pool = Pool(Post(kind), size=2, replenish=False)
    assert pool.await_warm(SECONDS)
    taken, left = pool.take(), pool._waiting[0]
    pool.close()
    pool.close()
    assert left.process.poll() is not None and taken.process.poll() is None
    taken.close()
    assert taken.process.poll() is not None
    with pytest.raises(RuntimeError, match="closed"):
        pool.take()


def test_one_that_died_while_it_waited_is_passed_over(kind: SandboxKind) -> None:
    with Pool(Post(kind), size=2, replenish=False) as pool:
        assert pool.await_warm(SECONDS)
        first = pool._waiting[0]
        os.kill(pids(first)[0], signal.SIGKILL)
        first.process.wait(SECONDS)
        with Session(pool.take(), torch.device("cpu"), Deadlines()) as session:
            session.await_start()


def test_without_replenishing_later_ones_start_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(Worker, "start", lambda post: started.append(post) or _Fake())
    with Pool(Post(SandboxKind.NATIVE), size=2, replenish=False) as pool:
        given = [pool.take() for _ in range(5)]
    assert len(set(map(id, given))) == len(started) == 5


def test_a_worker_that_is_gone_at_once_is_found_when_it_is_used(
    kind: SandboxKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launched(*arguments: Any, **options: Any) -> SandboxedProcess:
        process = launch(*arguments, **options)
        process.kill()
        return process

    monkeypatch.setattr(pools, "launch", launched)
    session = Session(Worker.start(Post(kind)), torch.device("cpu"), Deadlines())
    with session, pytest.raises(Ended, match="did not start"):
        session.await_start()


def test_a_start_that_fails_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [SandboxError("no bwrap today"), _Fake()]

    def start(_post: Post) -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(Worker, "start", start)
    monkeypatch.setattr(pools, "_PAUSE_SECONDS", 0.01)
    with Pool(Post(SandboxKind.NATIVE), size=1, replenish=False) as pool:
        with pytest.raises(SandboxError, match="no bwrap today"):
            pool.take()
        assert pool.take() is not None


def test_starting_workers_needs_no_torch() -> None:
    code = "import sys, kernelyard.sandbox.pool; print(sorted({'torch', 'pydantic', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


class _Fake:
    """A worker that is always up."""

    process = property(lambda self: self)

    def poll(self) -> None:
        return None

    def close(self) -> None:
        pass
