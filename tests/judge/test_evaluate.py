"""The judge, end to end, on solutions it must refuse and solutions it must not."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from judged_here import LIMITS, PROBLEM, verdict_on

from kernelyard.core.verdict import Phase, Status, Verdict
from kernelyard.judge.clock import Clock
from kernelyard.judge.decision import decide
from kernelyard.judge.evaluate import _Attempt, evaluate
from kernelyard.judge.findings import Findings
from kernelyard.judge.plan import Plan
from kernelyard.judge.statistics import Ratio
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.launch import SandboxKind, choose
from kernelyard.suites.kernelbench import load_problem, read_solution

ROOT = Path(__file__).parents[2]
# Long enough for a loaded machine, short enough for the one that never answers.
DEADLINES = Deadlines(load=60, check=15, time=60)


def judge(
    solution: Path, device: torch.device, problem: Path = PROBLEM, kind: SandboxKind | None = None, plan: Plan = Plan()
) -> Verdict:
    return verdict_on(problem, solution, device, kind=kind, deadlines=DEADLINES, plan=plan)


def test_a_correct_kernel_passes_with_the_whole_protocol(device: torch.device) -> None:
    plan = Plan(rounds=4, most_rounds=3)
    verdict = judge(ROOT / "examples/judge/correct.py", device, plan=plan)
    assert verdict.status is Status.PASSED, verdict.message
    assert verdict.trials == plan.trials
    assert verdict.timed_outputs_checked >= plan.rounds
    assert verdict.time is not None and verdict.baseline is not None and verdict.floor is not None
    # Rounds that were doubted may come to count with the last one.
    assert verdict.rounds is not None and verdict.rounds >= plan.most_rounds
    assert len(verdict.time.samples_ms) == len(verdict.baseline.samples_ms) == verdict.rounds * plan.calls
    assert verdict.speedup_low is not None and verdict.speedup is not None and verdict.speedup_high is not None
    assert verdict.speedup_low <= verdict.speedup <= verdict.speedup_high
    assert verdict.noise is not None and verdict.confirmed is not None
    # Triton's interpreter takes 300 times as long; what three rounds on a loaded machine decide, they may leave open.
    assert device.type == "cuda" or verdict.speedup < 1
    ratio = Ratio(verdict.speedup, verdict.speedup_low, verdict.speedup_high)
    assert verdict.decision is decide(ratio, verdict.noise, confirmed=verdict.confirmed)
    assert verdict.host_time is not None and verdict.host_baseline is not None
    assert verdict.floor.bytes == 2 * 32 * 1000 * 4
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_whoever_adds_up_in_one_loop_passes_and_the_verdict_says_so(device: torch.device) -> None:
    exploits = ROOT / "tests/exploits"
    plan = Plan(rounds=3, seconds=0)
    verdict = judge(exploits / "honest/adds_up_in_one_loop.py", device, exploits / "problems/column_sum.py", plan=plan)
    assert verdict.status is Status.PASSED, verdict.message
    (flag,) = (flag for flag in verdict.flags if flag.name == "adds_up_plainly")
    assert flag.evidence.startswith("right as one loop over 4096 numbers is")


def test_a_crash_leaves_the_next_verdict_alone(device: torch.device) -> None:
    assert judge(ROOT / "examples/judge/kills_itself.py", device).status is Status.CRASHED
    assert judge(ROOT / "examples/judge/correct.py", device, plan=Plan(rounds=3, seconds=0)).status is Status.PASSED


@pytest.mark.slow
def test_the_native_sandbox_judges_alike(device: torch.device) -> None:
    for name, status in (
        ("correct", Status.PASSED),
        ("cached", Status.INCORRECT_VALUE),
        ("kills_itself", Status.CRASHED),
    ):
        solution = ROOT / f"examples/judge/{name}.py"
        verdict = judge(solution, device, kind=SandboxKind.NATIVE, plan=Plan(rounds=3, seconds=0))
        assert verdict.status is status, f"{name}: {verdict.message}"
        assert verdict.sandbox.kind == "native"


def test_a_device_is_looked_at_after_whoever_did_not_end_as_workers_do() -> None:
    def ended(status: Status, phase: Phase = Phase.CHECK, *, killed: bool = False) -> bool:
        return _Attempt(status, "no", phase, Findings(), killed=killed).abnormal

    assert ended(Status.CRASHED) and ended(Status.REJECTED, killed=True)
    assert not ended(Status.REJECTED), "it was refused, and nobody was killed"
    assert not ended(Status.REJECTED, Phase.COMPILE, killed=True)


def test_weights_reach_the_solution_by_name(tmp_path: Path, device: torch.device) -> None:
    """The solution draws its weights in another order than the reference; by seed alone it would be wrong."""
    problem = tmp_path / "problem.py"
    problem.write_text(
        "import torch, torch.nn as nn\n"
        "class Model(nn.Module):\n"
        "    def __init__(self, width):\n"
        "        super().__init__()\n"
        "        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)\n"
        "    def forward(self, x):\n"
        "        return self.second(self.first(x).relu())\n"
        "def get_inputs(): return [torch.rand(8, 16)]\n"
        "def get_init_inputs(): return [16]\n"
    )
    solution = tmp_path / "solution.py"
    solution.write_text(
        "import torch.nn as nn\n"
        "class ModelNew(nn.Module):\n"
        "    def __init__(self, width):\n"
        "        super().__init__()\n"
        "        self.second, self.first = nn.Linear(width, width), nn.Linear(width, width)\n"
        "    def forward(self, x):\n"
        "        return self.second(self.first(x).relu())\n"
    )
    verdict = judge(solution, device, problem=problem, plan=Plan(rounds=3, seconds=0))
    assert verdict.status is Status.PASSED, verdict.message
    assert verdict.weights == "state_dict"
    assert verdict.floor is not None and verdict.floor.operations == 2 * 2 * 8 * 16 * 16


def test_what_is_told_of_a_gain_that_is_shown_in_part_is_on_record(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds are those that were timed, of which ten thousand are told."""
    monkeypatch.setattr(Clock, "is_capped", lambda _: True)
    monkeypatch.setattr(Clock, "told", lambda _: Ratio(1e4, 1e4, 1e4))
    verdict = judge(ROOT / "examples/judge/correct.py", device, plan=Plan(rounds=3, seconds=0))
    assert verdict.told == pytest.approx(1e4), verdict.message


def test_a_problem_that_cannot_tell_is_flagged(tmp_path: Path, device: torch.device) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM.read_text().replace("torch.softmax(x, dim=-1)", "x.abs().clamp(max=0)"))
    solution = tmp_path / "solution.py"
    solution.write_text(Path(ROOT / "tests/exploits/zeros.py").read_text())
    verdict = judge(solution, device, problem=problem, plan=Plan(rounds=3, seconds=0))
    flags = {flag.name for flag in verdict.flags}
    assert "degenerate_problem" in flags
    of_zeros = {"no_own_kernel"} if device.type == "cuda" else set()
    assert flags <= {"degenerate_problem", "uncertified_gain", *of_zeros}, "quicker, by less than a request takes"


def test_a_problem_that_fails_is_not_the_solutions_fault(tmp_path: Path, device: torch.device) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM.read_text().replace("torch.softmax(x, dim=-1)", "x @ x"))
    verdict = judge(ROOT / "examples/judge/correct.py", device, problem=problem)
    assert verdict.status is Status.INVALID_PROBLEM
    assert "the reference fails" in verdict.message


def test_a_problem_that_the_machine_has_no_memory_for_is_neither_ones_fault(
    tmp_path: Path, device: torch.device
) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM.read_text() + "\n\ndef get_inputs():\n    return [torch.randn(1 << 24, 1 << 24)]\n")
    verdict = judge(ROOT / "examples/judge/correct.py", device, problem=problem)
    assert verdict.status is Status.INFRA_ERROR
    assert verdict.message.startswith("too large for this machine")


@pytest.mark.parametrize(("name", "returned"), [("get_inputs", "'abc'"), ("get_init_inputs", "3")])
def test_a_problem_whose_functions_return_no_list_is_told_so(
    name: str, returned: str, tmp_path: Path, device: torch.device
) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM.read_text() + f"\n\ndef {name}():\n    return {returned}\n")
    verdict = judge(ROOT / "examples/judge/correct.py", device, problem=problem)
    assert verdict.status is Status.INVALID_PROBLEM
    assert f"{name} returns a" in verdict.message and "expected a list" in verdict.message


def test_arguments_that_cannot_cross_are_the_problems_fault(tmp_path: Path, device: torch.device) -> None:
    problem = tmp_path / "problem.py"
    text = PROBLEM.read_text().replace("return []", "return [object()]")
    problem.write_text(
        text.replace(
            "    def forward", "    def __init__(self, anything):\n        super().__init__()\n\n    def forward"
        )
    )
    verdict = judge(ROOT / "examples/judge/correct.py", device, problem=problem)
    assert verdict.status is Status.INVALID_PROBLEM
    assert "an argument of type object" in verdict.message


def test_a_worker_that_does_not_start_is_the_machines_fault(device: torch.device) -> None:
    verdict = evaluate(
        load_problem(PROBLEM),
        read_solution(ROOT / "examples/judge/correct.py"),
        device=device,
        dtype=torch.float32,
        sandbox=choose(None, str(device)),
        limits=LIMITS,
        deadlines=replace(DEADLINES, start=0.05),
    )
    assert verdict.status is Status.INFRA_ERROR
