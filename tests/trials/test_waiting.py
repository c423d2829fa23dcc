"""Workers that wait from one trial to the next are none of the samples' doing, and all else still is."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from kernelyard.cli.exploits import SUITE
from kernelyard.sandbox.launch import SandboxError, SandboxKind, choose
from kernelyard.trials import trial
from kernelyard.trials.canary import Canary
from kernelyard.trials.sample import read_sample
from kernelyard.trials.trial import HONEST_LIMITS, HOSTILE_LIMITS, Court, try_all, try_one
from kernelyard.trials.waiting import Waiting

CPU = torch.device("cpu")


@pytest.mark.parametrize("sandbox", dict.fromkeys([choose(None, "cpu"), SandboxKind.NATIVE]))
def test_trials_one_after_another_share_workers_that_wait(sandbox: SandboxKind) -> None:
    control, cheat = (read_sample(SUITE / name) for name in ("honest/control.py", "zeros.py"))
    with Canary(CPU) as canary, Waiting.opened(sandbox, "cpu", HONEST_LIMITS, HOSTILE_LIMITS) as waiting:
        canary.leave_out(waiting.processes)
        first = {process.pid for process in waiting.processes()}
        court = replace(Court(device=CPU, sandbox=sandbox), waiting=waiting)
        outcomes = list(try_all([control, cheat, control], control, court, canary, every=9))
        assert [outcome.success for outcome in outcomes] == [""] * 3
        assert len({process.pid for process in waiting.processes()} - first) >= 3, "each has one life"
        with subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]) as own:
            (changed,) = canary.changes()
            assert "the judge's processes" in changed and str(own.pid) in changed
            own.kill()
        left = waiting.processes()
    assert all(process.poll() is not None for process in left)


def test_workers_that_do_not_start_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_: object) -> None:
        raise SandboxError("no room")

    monkeypatch.setattr("kernelyard.trials.waiting.SECONDS", 0.0)
    monkeypatch.setattr("kernelyard.sandbox.pool.Worker.start", no_room)
    opened = Waiting.opened(SandboxKind.NATIVE, "cpu", HONEST_LIMITS)
    with opened as waiting, pytest.raises(SandboxError, match="no room"):
        waiting.processes()


def test_where_none_start_the_trial_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_: object) -> list[str]:
        raise SandboxError("no room")

    def no_verdict(*_: object) -> None:
        raise RuntimeError("no verdict here")

    monkeypatch.setattr(Canary, "changes", no_room)
    monkeypatch.setattr(trial, "judge", no_verdict)
    control = read_sample(SUITE / "honest/control.py")
    with Canary(CPU) as canary:
        outcome = try_one(control, Court(device=CPU, sandbox=SandboxKind.NATIVE), canary)
    assert outcome.success.endswith("it changed the judge's workers: no room")
