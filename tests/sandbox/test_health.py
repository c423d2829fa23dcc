"""A device after an abnormal end: looked at, set aside if it is sick, and never blamed on the next candidate."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelyard.core.verdict import Phase, Status, Verdict
from kernelyard.judge.evaluate import evaluate
from kernelyard.judge.plan import Plan
from kernelyard.sandbox import health, processes, turn
from kernelyard.sandbox.health import Ward, judged, probe
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.turn import NoTurn
from kernelyard.suites.kernelbench import load_problem, read_solution

JUDGE = Path(__file__).parents[2] / "examples/judge"


def judge(name: str, ward: Ward, device: torch.device) -> Verdict:
    return evaluate(
        load_problem(JUDGE / "problem.py"),
        read_solution(JUDGE / f"{name}.py"),
        device=device,
        dtype=torch.float32,
        sandbox=choose(None, str(device)),
        limits=Limits(),
        plan=Plan(rounds=3, seconds=0),
        ward=ward,
    )


def test_a_sick_device_is_set_aside_and_not_blamed_on_the_next(tmp_path: Path, device: torch.device) -> None:
    looks: list[torch.device] = []

    def sick(where: torch.device, _turn: object) -> str:
        looks.append(where)
        return "only 3 MiB are free, 1024 expected"

    ward = Ward(tmp_path, sick)
    assert judge("kills_itself", ward, device).status is Status.CRASHED, "its own end keeps its own verdict"
    assert looks == [device]
    following = judge("correct", ward, device)
    assert (following.status, following.phase) == (Status.INFRA_ERROR, Phase.START)
    assert "only 3 MiB are free" in following.message and "crashed of kills_itself.py" in following.message
    assert len(following.message.splitlines()) == 1
    assert looks == [device], "nothing ran, so there is nothing to look at"
    assert ward.clear(device) and not ward.clear(device)
    assert ward.refusal(device) is None


def test_a_healthy_device_stays(tmp_path: Path, device: torch.device) -> None:
    ward = Ward(tmp_path, lambda *_: None)
    assert judge("kills_itself", ward, device).status is Status.CRASHED
    assert ward.refusal(device) is None and not list(tmp_path.iterdir())


def test_a_plain_no_is_no_reason_to_look(tmp_path: Path, device: torch.device) -> None:
    ward = Ward(tmp_path, lambda *_: pytest.fail("looked"))
    assert judge("wrong", ward, device).status is Status.INCORRECT_VALUE


@pytest.mark.parametrize("text", ["", "{", "[]", '{"since": 1}'])
def test_a_file_that_cannot_be_read_still_sets_aside(tmp_path: Path, text: str) -> None:
    (tmp_path / "cpu.json").write_text(text)
    assert "set aside" in (Ward(tmp_path).refusal(torch.device("cpu")) or "")


def test_what_the_look_finds() -> None:
    assert judged(True, 70 << 30) is None
    assert "wrong" in (judged(False, 70 << 30) or "")
    assert "3 MiB" in (judged(True, 3 << 20) or "")


def test_the_look_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no such device it fails, and says why in one line."""
    assert probe(torch.device("cpu"), nullcontext()) is None
    reason = probe(torch.device("cuda", 63), nullcontext())
    assert reason is not None and reason.startswith("a small computation failed: ")
    monkeypatch.setattr(health, "_SECONDS", 0.01)
    assert "did not end" in (probe(torch.device("cuda", 63), nullcontext()) or "")


@pytest.mark.parametrize("said", [b"", b"3", b"{}", b"\xff\xfe", b'{"right": true}'])
def test_a_look_that_says_nothing_of_use_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: bytes
) -> None:
    (tmp_path / "said").write_bytes(said)
    talker = tmp_path / "python"
    talker.write_text(f"#!/bin/sh\ncat '{tmp_path}/said'\n")
    talker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(talker))
    assert (probe(torch.device("cuda", 63), nullcontext()) or "").startswith("a small computation failed: exit code 0")


def test_the_look_is_within_its_turn_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is no turn to be had."""
    seen: list[str] = []
    started, elsewhere = subprocess.Popen.communicate, torch.device("cuda", 63)
    monkeypatch.setattr(
        subprocess.Popen, "communicate", lambda *given, **how: (seen.append("look"), started(*given, **how))[1]
    )

    @contextmanager
    def mine() -> Iterator[None]:
        seen.append("begins")
        yield
        seen.append("ends")

    @contextmanager
    def nobodys() -> Iterator[None]:
        raise NoTurn("expected the device to be free")
        yield

    before = processes.descendants(os.getpid())
    assert "failed" in (probe(elsewhere, mine()) or "") and seen == ["begins", "look", "ends"]
    with pytest.raises(NoTurn):
        probe(elsewhere, nobodys())
    assert seen[-1] == "ends" and set(processes.descendants(os.getpid())) <= set(before)


def test_a_look_that_cannot_be_killed_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in a call of a sick driver outlives SIGKILL."""
    started: list[subprocess.Popen[str]] = []
    real = subprocess.Popen

    def stuck(_command: list[str], **how: Any) -> subprocess.Popen[str]:
        process = real(["sleep", "60"], **how)
        monkeypatch.setattr(process, "kill", lambda: None)
        started.append(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", stuck)
    monkeypatch.setattr(health, "_SECONDS", 0.1)
    monkeypatch.setattr(health, "_GRACE_SECONDS", 0.1)
    begin = time.monotonic()
    try:
        assert "did not end" in (probe(torch.device("cuda", 63), nullcontext()) or "")
        assert time.monotonic() - begin < 10
        assert started[0].stdout is not None and started[0].stdout.closed and started[0].poll() is None
    finally:
        started[0].send_signal(signal.SIGKILL)
        started[0].wait()


@pytest.mark.gpu
def test_a_healthy_gpu_is_found_healthy() -> None:
    assert probe(torch.device("cuda", 0), nullcontext()) is None


def test_doctor_takes_a_device_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path))
    ward = Ward(tmp_path / "quarantine", lambda *_: "sick")
    ward.look(torch.device("cpu"), "a test", nullcontext())
    assert "sick (after a test)" in json.loads((tmp_path / "quarantine/cpu.json").read_text())["reason"]
    command = [sys.executable, "-m", "kernelyard", "doctor", "--device", "cpu", "--clear-quarantine"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert "cpu is taken back" in done.stdout, done.stderr
    assert Ward(tmp_path / "quarantine").refusal(torch.device("cpu")) is None


def test_a_device_is_had_by_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "identity", lambda _: "GPU-0")
    gpu = torch.device("cuda", 0)
    with turn.turn(gpu, 1, tmp_path):
        with pytest.raises(NoTurn, match="to be free"), turn.turn(gpu, 0.1, tmp_path):
            pass
        with turn.turn(torch.device("cpu"), 0, tmp_path):
            pass
        got = threading.Event()

        def wait() -> None:
            with turn.turn(gpu, 20, tmp_path):
                got.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not got.wait(0.2)
    assert got.wait(20)
    waiting.join()


def test_a_process_that_was_forked_in_a_turn_keeps_nobody_from_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `torch.compile` leaves some behind, which have every file that the benchmark had."""
    monkeypatch.setattr(turn, "identity", lambda _: "GPU-0")
    gpu = torch.device("cuda", 0)
    read, write = os.pipe()
    with turn.turn(gpu, 1, tmp_path):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # until the test is over
            os._exit(0)
    try:
        with turn.turn(gpu, 1, tmp_path):
            pass
    finally:
        os.close(write)
        os.waitpid(child, 0)
        os.close(read)


def test_who_came_first_has_the_device_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before those who would share it with whoever has it now; who has gone meanwhile holds up nobody."""
    monkeypatch.setattr(turn, "identity", lambda _: "GPU-0")
    gpu = torch.device("cuda", 0)
    order: list[int] = []
    line = tmp_path / "GPU-0.line"

    def wait(number: int, *, shared: bool) -> None:
        with turn.turn(gpu, 20, tmp_path, shared=shared):
            order.append(number)

    waiting = [threading.Thread(target=wait, args=(number,), kwargs={"shared": number > 3}) for number in range(6)]
    with turn.turn(gpu, 1, tmp_path, shared=True):
        (line / f"{0:020d}-1-1").touch()
        for number, thread in enumerate(waiting):
            thread.start()
            patience = time.monotonic() + 20
            while sum(not place.name.endswith("-1-1") for place in line.glob("[0-9]*")) <= number:
                assert time.monotonic() < patience
                time.sleep(0.001)
        time.sleep(0.2)
        assert order == [], "the first wants it alone"
    for thread in waiting:
        thread.join()
    assert sorted(order) == list(range(6)) and order[:4] == [0, 1, 2, 3]
    assert list(line.iterdir()) == []


def test_who_is_suspended_in_the_line_is_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "identity", lambda _: "GPU-0")
    place = tmp_path / "GPU-0.line" / f"{0:020d}-1-1"
    place.parent.mkdir()
    with place.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(NoTurn), turn.turn(torch.device("cuda", 0), 0.1, tmp_path):
            pass
        os.utime(place, (time.time() - 60, time.time() - 60))
        with turn.turn(torch.device("cuda", 0), 1, tmp_path):
            assert place.exists()


def test_proofs_share_a_device_and_keep_clocks_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "identity", lambda _: "GPU-0")
    gpu = torch.device("cuda", 0)
    alone, together = partial(turn.turn, gpu, folder=tmp_path), partial(turn.turn, gpu, folder=tmp_path, shared=True)
    with together(1), together(1), pytest.raises(NoTurn), alone(0.1):
        pass
    with alone(1), pytest.raises(NoTurn), together(0.1):
        pass
