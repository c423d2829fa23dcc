"""The walls in the verdict: what holds is on record, what does not hold ends the evaluation, none at all is loud."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelyard.core.layers import LayerWitness
from kernelyard.core.verdict import Status, Verdict
from kernelyard.judge.evaluate import evaluate
from kernelyard.judge.plan import Plan
from kernelyard.report.html import render
from kernelyard.sandbox import witness
from kernelyard.sandbox.launch import SandboxError, SandboxKind, choose
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.witness import standing
from kernelyard.suites.kernelbench import load_problem, read_solution

JUDGE = Path(__file__).parents[2] / "examples/judge"
PLAN = Plan(rounds=3, seconds=0)


def judge(kind: SandboxKind, device: torch.device, name: str = "wrong") -> Verdict:
    return evaluate(
        load_problem(JUDGE / "problem.py"),
        read_solution(JUDGE / f"{name}.py"),
        device=device,
        dtype=torch.float32,
        sandbox=kind,
        limits=Limits(),
        plan=PLAN,
    )


def layer(**other: object) -> LayerWitness:
    fields: dict[str, object] = {
        "layer": "read",
        "tried": "read",
        "holds": False,
        "available": True,
        "detail": "got it",
    }
    return LayerWitness.model_validate(fields | other)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "_standing", {})


def test_every_layer_is_on_record(device: torch.device) -> None:
    kind = choose(None, str(device))
    verdict = judge(kind, device)
    assert verdict.status is Status.INCORRECT_VALUE
    assert verdict.sandbox.layers == standing(kind, str(device))
    assert {"network", "daemon", "memory"} <= {layer.layer for layer in verdict.sandbox.layers if layer.holds}


def test_the_walls_are_tried_once(forgetful: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[SandboxKind] = []
    monkeypatch.setattr(witness, "witness", lambda kind, device: tried.append(kind) or [layer(holds=True)])
    assert standing(SandboxKind.NATIVE) == standing(SandboxKind.NATIVE) == (layer(holds=True),)
    assert tried == [SandboxKind.NATIVE]


def test_no_verdict_where_a_wall_has_fallen(
    forgetful: None, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    monkeypatch.setattr(witness, "witness", lambda kind, device: [layer(holds=True), layer()])
    for _ in range(2):  # the second is not answered from memory as if it held
        verdict = judge(SandboxKind.NATIVE, device)
        assert verdict.status is Status.INFRA_ERROR
        assert "the native sandbox does not hold: read: got it" in verdict.message
    with pytest.raises(SandboxError):
        standing(SandboxKind.NATIVE)


def test_a_layer_that_the_machine_lacks_is_no_fallen_wall(forgetful: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "witness", lambda kind, device: [layer(available=False)])
    assert standing(SandboxKind.NATIVE) == (layer(available=False),)


def test_without_walls_only_by_name_and_stamped() -> None:
    words = [sys.executable, "-m", "kernelyard", "eval", str(JUDGE / "problem.py"), str(JUDGE / "wrong.py"), "--json"]
    done = subprocess.run([*words, "--unsafe-no-sandbox"], capture_output=True, text=True, timeout=240)
    *lines, last = done.stdout.splitlines()
    assert "NO SANDBOX (--unsafe-no-sandbox)" in lines[-1]
    verdict = Verdict.model_validate_json(last)
    assert verdict.sandbox.kind == "none" and verdict.sandbox.layers == ()
    assert json.loads(last)["sandbox"]["kind"] == "none"
    assert "NO SANDBOX (--unsafe-no-sandbox)" in render([], [verdict], "title")
    for refused in (["--sandbox", "none"], ["--sandbox", "native", "--unsafe-no-sandbox"]):
        done = subprocess.run([*words, *refused], capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and "--unsafe-no-sandbox" in done.stderr
