"""Who is too late ends in the phase whose deadline it was, of a whole verdict."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from judged_here import PROBLEM, verdict_on

from kernelyard.core.verdict import Phase, Status, Verdict
from kernelyard.judge import evaluate as judging
from kernelyard.sandbox import turn as turns
from kernelyard.sandbox.deadlines import Deadlines

LONG = Deadlines(queue=60, load=60, check=60, time=60)
HONEST = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, dim=-1)\n"
HEAD = "import time\nimport torch\nfrom torch import nn\n"
CALLS = """class ModelNew(nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        if self.calls > 90:
            time.sleep(30)
        return torch.softmax(x, dim=-1)
"""


def judge(folder: Path, source: str, deadlines: Deadlines, device: torch.device) -> Verdict:
    (solution := folder / "solution.py").write_text(HEAD + source)
    return verdict_on(PROBLEM, solution, device, deadlines=deadlines)


@pytest.mark.parametrize(
    ("source", "phase"),
    [
        ("time.sleep(30)\n" + HONEST, Phase.LOAD),
        (HONEST.replace("return", "time.sleep(30); return"), Phase.CHECK),
        (CALLS, Phase.TIME),
    ],
    ids=["at import", "in the first call", "when it is timed"],
)
def test_who_hangs_ends_where_it_hangs(tmp_path: Path, device: torch.device, source: str, phase: Phase) -> None:
    """By that phase's deadline, while those of the others are long."""
    verdict = judge(tmp_path, source, replace(LONG, **{phase.value: 3.0}), device)
    assert (verdict.status, verdict.phase) == (Status.TIMEOUT, phase), verdict.message
    assert f"3 s in phase {phase.value}" in verdict.message or "in all" in verdict.message
    assert verdict.speedup is None


def test_who_has_no_turn_in_time_is_nobodys_fault(
    tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU is shared, and so a device is stood in for where there is none."""
    there = torch.device("cuda", 0)
    monkeypatch.setattr(turns, "identity", lambda _: "one-device")
    monkeypatch.setattr(judging, "turn", lambda _device, seconds, _folder: turns.turn(there, seconds, tmp_path))
    with turns.turn(there, 1.0, tmp_path):
        verdict = judge(tmp_path, HONEST, replace(LONG, queue=0.2), device)
    assert (verdict.status, verdict.phase) == (Status.INFRA_ERROR, Phase.QUEUE), verdict.message
    assert verdict.message == "expected cuda:0 to be free of other runs within 0.2 s"
