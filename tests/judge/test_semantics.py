"""What a problem may take and return, and in which mode it is judged."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from judged_here import verdict_on

from kernelyard.core.operator import Tolerance
from kernelyard.core.problem import Problem
from kernelyard.core.verdict import Phase, Status, Verdict
from kernelyard.judge.exam import Exam
from kernelyard.judge.plan import Plan
from kernelyard.judge.reference import InvalidProblem
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.frames import ProtocolError
from kernelyard.sandbox.wire import flatten, named_leaves
from kernelyard.suites.kernelbench import load_problem
from kernelyard.suites.selection import Selection

MODEL = """
import torch
from torch import nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {construct}

    def forward(self, {takes}):
        {forward}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return []
"""


def judged(tmp_path: Path, problem_is: dict[str, str], theirs: dict[str, str], *, train: bool = False) -> Verdict:
    """The verdict on a solution that is the problem but for what is `theirs`."""
    usual = {"construct": "pass", "takes": "x", "inputs": "[torch.randn(8, 64)]"} | problem_is
    problem, solution = tmp_path / "problem.py", tmp_path / "solution.py"
    problem.write_text(MODEL.format(name="Model", **usual))
    solution.write_text(MODEL.format(name="ModelNew", **(usual | theirs)))
    return briefly(replace(load_problem(problem), train_mode=train), solution)


def briefly(problem: Problem, solution: Path) -> Verdict:
    deadlines, plan = Deadlines(load=60, check=30, time=60), Plan(rounds=3, most_rounds=3, seconds=1)
    return verdict_on(problem, solution, torch.device("cpu"), deadlines=deadlines, plan=plan)


def right(verdict: Verdict) -> bool:
    """Every check passed; what the clocks of a loaded machine say of a microsecond is not the subject here."""
    return verdict.status is Status.PASSED or (verdict.status, verdict.phase) == (Status.REJECTED, Phase.TIME)


NAMED = {"forward": "return {'sum': x.sum(1), 'parts': [x + 1, (x * 2,)]}"}


def test_a_dict_is_compared_by_its_keys_whatever_their_order(tmp_path: Path) -> None:
    other_order = {"forward": "return {'parts': [x + 1, (2 * x,)], 'sum': x.sum(dim=1)}"}
    verdict = judged(tmp_path, NAMED, other_order)
    assert right(verdict), verdict.message
    other_types = {"forward": "return {'parts': (x + 1, [2 * x]), 'sum': x.sum(dim=1)}"}
    refused = judged(tmp_path, NAMED, other_types)
    assert refused.message == "output[parts][0]: returned in tuple of 2 in dict of 2, expected list of 2 in dict of 2"
    assert [figures.output for figures in verdict.errors] == ["output[parts][0]", "output[parts][1][0]", "output[sum]"]


def test_a_wrong_or_missing_value_of_a_dict_is_named(tmp_path: Path) -> None:
    wrong = judged(tmp_path, NAMED, {"forward": "return {'sum': x.sum(1), 'parts': [x + 1, (x * 2.01,)]}"})
    assert wrong.status is Status.INCORRECT_VALUE
    assert "output[parts][1][0]" in wrong.message
    missing = judged(tmp_path, NAMED, {"forward": "return {'parts': [x + 1, (x * 2,)]}"})
    assert missing.status is Status.INCORRECT_SHAPE
    assert "expected output[parts][0], output[parts][1][0], output[sum]" in missing.message


@pytest.mark.parametrize(("first", "second"), [("0", "1"), ("'0'", "'1'")])
def test_a_dict_does_not_stand_for_a_tuple(tmp_path: Path, first: str, second: str) -> None:
    """It passed where its keys read as places in one, and whoever unpacks the tuple is given the keys."""
    pair = {"forward": "return x + 1, 2 * x"}
    verdict = judged(tmp_path, pair, {"forward": f"return {{{first}: x + 1, {second}: 2 * x}}"})
    assert verdict.status is Status.INCORRECT_SHAPE
    assert verdict.message == f"returned output{{{first}}}, output{{{second}}}; expected output[0], output[1]"


def test_integers_and_booleans_arrive_as_they_are_also_within_a_dict(tmp_path: Path) -> None:
    picks = {
        "takes": "given, mask",
        "inputs": "[{'x': torch.randn(8, 64), 'index': torch.randint(64, (8, 4))}, torch.rand(8, 4) < 0.5]",
        "forward": "return given['x'].gather(1, given['index']) * mask, given['index'] * mask",
    }
    kept = (
        "assert (given['x'].dtype, given['index'].dtype, mask.dtype) == (torch.float32, torch.int64, torch.bool)\n"
        "        return torch.where(mask, given['x'].gather(1, given['index']), 0), given['index'] * mask"
    )
    verdict = judged(tmp_path, picks, {"forward": kept})
    assert right(verdict), verdict.message


BATCH_NORM = {
    "construct": "self.norm = nn.BatchNorm1d(64)",
    "forward": "return self.norm(x)",
    "inputs": "[torch.randn(128, 64)]",
}
BY_BATCH = {
    "forward": "m, v = x.mean(0), x.var(0, unbiased=False)\n"
    "        return (x - m) / torch.sqrt(v + self.norm.eps) * self.norm.weight + self.norm.bias"
}
BY_RUNNING = {
    "forward": "return nn.functional.batch_norm(x, self.norm.running_mean, self.norm.running_var, self.norm.weight,\n"
    "            self.norm.bias, False)"
}


@pytest.mark.parametrize(("train", "honest", "wrong"), [(True, BY_BATCH, BY_RUNNING), (False, BY_RUNNING, BY_BATCH)])
def test_a_batch_norm_is_judged_in_the_mode_that_was_asked_for(
    tmp_path: Path, train: bool, honest: dict[str, str], wrong: dict[str, str]
) -> None:
    verdict = judged(tmp_path, BATCH_NORM, honest, train=train)
    assert right(verdict), verdict.message
    assert (verdict.train_mode, verdict.weights) == (train, "state_dict")
    assert judged(tmp_path, BATCH_NORM, wrong, train=train).status is Status.INCORRECT_VALUE


def test_what_draws_random_numbers_has_no_right_answer(tmp_path: Path) -> None:
    dropout = {"construct": "self.drop = nn.Dropout(0.2)", "forward": "return self.drop(x)"}
    assert right(judged(tmp_path, dropout, {"forward": "return x.clone()"}))
    verdict = judged(tmp_path, dropout, {}, train=True)
    assert verdict.status is Status.INVALID_PROBLEM
    assert "the reference draws random numbers" in verdict.message
    noisy = {"forward": "return x + torch.randn_like(x)"}
    assert judged(tmp_path, noisy, {"forward": "return -x"}).status is Status.INVALID_PROBLEM


def test_random_numbers_that_are_not_torchs(tmp_path: Path) -> None:
    noisy = {"forward": "return x * (1 + __import__('random').random())"}
    verdict = judged(tmp_path, noisy, {"forward": "return 1.5 * x"})
    assert (verdict.status, verdict.phase) == (Status.INVALID_PROBLEM, None), "two draws were the ruler"
    assert "random numbers" in verdict.message or "keeps state" in verdict.message  # far apart by chance


def test_a_reference_that_keeps_state_has_no_right_answer(tmp_path: Path) -> None:
    stateful = {
        "construct": "self.hidden = torch.zeros(8, 64)",
        "forward": "self.hidden = self.hidden + x\n        return self.hidden.clone()",
    }
    verdict = judged(tmp_path, stateful, {})
    assert verdict.status is Status.INVALID_PROBLEM
    assert "the reference keeps state" in verdict.message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"construct": "self.all = []", "forward": "self.all += [x]\n        return tuple(self.all)"}, "keeps state"),
        ({"forward": "return x[x / 3 * 3 >= x] if x.dtype == torch.float32 else x[x >= x]"}, "another size in float64"),
        ({"forward": "return x.sum(1).abs().floor().long().max().item() % 2 * (x,) + (x, x)"}, "for some inputs"),
    ],
    ids=["more of them each time", "by rounding", "by the inputs"],
)
def test_a_reference_whose_answers_are_not_as_many(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    (tmp_path / "problem.py").write_text(
        MODEL.format(name="Model", takes="x", inputs="[torch.randn(8, 64)]", **{"construct": "pass"} | changes)
    )
    with pytest.raises(InvalidProblem, match=said):
        exam = Exam(load_problem(tmp_path / "problem.py"), torch.float32, torch.device("cpu"), Tolerance())
        exam.first_question()
        for _ in range(40):
            exam.question()


def test_a_reference_that_changes_its_inputs_says_so(tmp_path: Path) -> None:
    """Else who does as it does is refused for it."""
    changes = {"forward": "return x.relu_() + 1"}
    verdict = judged(tmp_path, changes, {})
    assert verdict.status is Status.INVALID_PROBLEM and "expected IN_PLACE = True" in verdict.message


def test_a_reference_may_return_a_parameter(tmp_path: Path) -> None:
    weight = {
        "construct": "self.weight = nn.Parameter(torch.randn(64))",
        "forward": "return x + self.weight, self.weight",
    }
    verdict = judged(tmp_path, weight, {"forward": "return x + self.weight, self.weight.detach().clone()"})
    assert right(verdict), verdict.message


def test_a_record_from_before_there_were_modes_still_reads(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"forward": "return x + 1"}, {})
    old = verdict.model_dump(mode="json")
    del old["train_mode"]
    assert Verdict.model_validate(old) == verdict


def test_an_operator_of_the_library_is_a_problem_like_any_other(tmp_path: Path) -> None:
    (entry,) = [each for each in Selection(suite="library").load("float32", "cpu").entries if each.name == "softmax.py"]
    solution = tmp_path / "solution.py"
    solution.write_text(
        "from torch import nn\n"
        "class ModelNew(nn.Module):\n"
        "    def forward(self, x, dim):\n"
        "        return nn.functional.softmax(x, dim)\n"
    )
    verdict = briefly(entry.load(), solution)
    assert right(verdict), verdict.message
    assert verdict.problem_sha256 == entry.source.sha256


def test_keys_cross_as_they_are_or_not_at_all() -> None:
    assert [name for name, _ in named_leaves({"b": 1, "a": [2, 3]})] == ["output[a][0]", "output[a][1]", "output[b]"]
    with pytest.raises(ProtocolError, match="key that is no string"):
        flatten({1: torch.ones(2)}, [])


FLOAT32_BY_NAME = {
    "inputs": "[torch.randn(128, 1024)]",
    "construct": "self.weight = nn.Parameter(torch.randn(1024, 64))",
    "forward": "return (x.float() @ self.weight.to(torch.float32)).to(x.dtype)",
}


def test_a_reference_that_asks_for_float32_is_held_in_float64(tmp_path: Path) -> None:
    """Else its own rounding is the truth, which nobody has who adds up in another order."""
    sums = {"forward": "return sum(a @ b for a, b in zip(x.split(32, 1), self.weight.split(32, 0)))"}
    verdict = judged(tmp_path, FLOAT32_BY_NAME, sums)
    assert right(verdict), verdict.message
    assert verdict.errors[0].honest_max_abs > 0


@pytest.mark.parametrize(
    "forward",
    [
        "return x @ torch.ones(64, 4, dtype=torch.float32)",
        "return (x.float().view(torch.int32) & -65536).view(torch.float32)",
        "return torch.zeros(64, dtype=torch.int32).view(torch.float32) + x",
    ],
    ids=["made within", "bits", "made of bits"],
)
def test_float32_by_name_is_no_reason_to_refuse_a_problem(tmp_path: Path, forward: str) -> None:
    text = MODEL.format(name="Model", takes="x", inputs="[torch.randn(8, 64)]", construct="pass", forward=forward)
    (tmp_path / "problem.py").write_text(text)
    exam = Exam(load_problem(tmp_path / "problem.py"), torch.float32, torch.device("cpu"), Tolerance())
    question = exam.first_question()
    assert exam.mark_values(question, question.honest).status is Status.PASSED
    assert exam.question().reference[0].dtype is torch.float64
