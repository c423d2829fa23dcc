"""What a problem costs at the least, counted without memory for it, and how a suite is listed."""

import json
import os
import re
import sys
import types
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_suite import LINEAR, checkout
from rich.console import Console
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from kernelyard.cli.problems import problems
from kernelyard.core.environment import describe
from kernelyard.core.errors import UsageError
from kernelyard.core.problem import Source
from kernelyard.judge.admission import Admission, MutantRecord
from kernelyard.judge.counting import Uncountable, cost_of, count
from kernelyard.judge.floor import datasheet_ceilings
from kernelyard.report.listing import listing_head, listing_markdown, listing_notes, listing_table
from kernelyard.suites import degenerate as marks
from kernelyard.suites.huggingface import CONFIGS
from kernelyard.suites.kernelbench import IN_EXTRA, problem_of
from kernelyard.suites.listing import Listed, listed
from kernelyard.suites.selection import Selection

ROOT = Path(__file__).parents[2]
PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {construct}

    def forward(self, *x):
        {forward}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return []
"""


def problem(construct: str = "pass", forward: str = "return x[0]", inputs: str = "[torch.rand(4, 8)]") -> Any:
    text = PROBLEM.format(construct=construct, forward=forward, inputs=inputs)
    return problem_of(Source(Path("made_up.py"), text))


def test_a_linear_layer_is_counted_to_the_byte_in_any_dtype() -> None:
    linear = problem("self.f = nn.Linear(8, 32)", "return {'y': [self.f(x[0])]}", "[torch.rand(16, 8)]")
    for dtype in (torch.float32, torch.bfloat16):
        counted = count(linear, dtype)
        assert counted.parameters == 8 * 32 + 32
        assert counted.cost.read_bytes == (16 * 8 + 8 * 32 + 32) * dtype.itemsize
        assert counted.cost.write_bytes == 16 * 32 * dtype.itemsize
        assert counted.cost.operations == 2 * 16 * 8 * 32
        assert counted.elements == 16 * 8 + 8 * 32 + 32 + 16 * 32


@pytest.mark.parametrize(
    ("made", "read", "written"),
    [
        (
            {"construct": "self.table = nn.Embedding(1000, 8)", "forward": "return self.table(x[0])"},
            3 * 8 + 3 * 8 * 4,
            96,
        ),
        ({"forward": "return x[0][:2] + 1", "inputs": "[torch.rand(100, 4)]"}, 2 * 4 * 4, 32),
        ({"forward": "return x[0].t()", "inputs": "[torch.rand(100, 4)]"}, 0, 0),
        ({"forward": "y = x[0] + 1\n        return y, y", "inputs": "[torch.rand(100, 4)]"}, 1600, 1600),
        (
            {
                "construct": "self.up = nn.Linear(4, 4, bias=False); self.down = nn.Linear(4, 4, bias=False); "
                "self.down.weight = self.up.weight",
                "forward": "return self.down(self.up(x[0]))",
                "inputs": "[torch.rand(100, 4)]",
            },
            1600 + 64,
            1600,
        ),
    ],
    ids=["rows of a table", "two rows", "a view", "one answer twice", "tied weights"],
)
def test_what_no_call_need_read_or_write_is_not_counted(made: dict[str, str], read: int, written: int) -> None:
    """Else an honest call takes less than the least that is possible, and is refused."""
    made = {"inputs": "[torch.randint(1000, (3,))]"} | made
    cost = count(problem(**made), torch.float32).cost
    assert (cost.read_bytes, cost.write_bytes) == (read, written)
    looks = problem(**made | {"forward": f"x[0].shape and torch.rand(1).item()\n        {made['forward']}"})
    with pytest.raises(Uncountable):
        count(looks, torch.float32)
    assert cost_of(looks.model_class(), looks.get_inputs()) == cost, "where it is called to be counted"


def test_integers_keep_their_size() -> None:
    picked = problem(forward="return (x[0] + 1)[x[1]]", inputs="[torch.rand(8, 4), torch.randint(8, (3,))]")
    assert count(picked, torch.float16).cost.read_bytes == 8 * 4 * 2 + 3 * 8


def test_what_no_machine_holds_is_counted() -> None:
    vast = problem(
        "self.f = nn.Linear(1 << 22, 1 << 22, bias=False)", "return self.f(x[0])", "[torch.rand(2, 1 << 22)]"
    )
    assert count(vast, torch.float32).cost.operations == 2 * 2 << 44


@pytest.mark.parametrize(
    "layer",
    [
        "nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)",
        "nn.LSTM(8, 16, 3, proj_size=4)",
        "nn.GRU(8, 16, 2, bidirectional=True)",
        "nn.RNN(8, 16, batch_first=True)",
    ],
)
def test_recurrent_layers_are_counted_as_torch_counts_their_steps(layer: str) -> None:
    given = problem(f"self.f = {layer}", "return self.f(x[0])", "[torch.rand(5, 7, 8)]")
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model = given.model_class()
        answers = model(*given.get_inputs())
    counted = count(given, torch.float32).cost
    assert counted.operations == counter.get_total_flops() > 0
    states = answers[1] if isinstance(answers[1], tuple) else (answers[1],)
    assert counted.write_bytes == 4 * sum(tensor.numel() for tensor in (answers[0], *states))


def test_a_constructor_may_look_at_values_and_a_forward_pass_may_not() -> None:
    looks = "self.f = nn.Linear(8, int(torch.tensor([4.0]).item()))"
    assert count(problem(looks, "return self.f(x[0])"), torch.float32).cost.operations == 2 * 4 * 8 * 4
    with pytest.raises(Uncountable, match="looks at values") as told:
        count(problem("self.f = nn.Linear(8, 4)", "return x[0] * x[0].sum().item()"), torch.float32)
    assert told.value.least is not None
    assert told.value.least.cost.read_bytes == 4 * (8 * 4 + 4 + 4 * 8)
    with pytest.raises(Uncountable, match="ZeroDivisionError") as told:
        count(problem(inputs="[1 / 0]"), torch.float32)
    assert told.value.least is None


@pytest.mark.parametrize(
    ("looks", "steps"),
    [
        ("3 if 0 in torch.ones(4, 8) else 1", 1),
        ("torch.arange(5).max().item()", 4),
        ("torch.ones(8).mul_(3)[2].int().item()", 3),
        ("5 if -1 in ids[:, [0, -1]] else 2", 2),
        ("ids.shape[0] + int((ids >= 0).all())", 5),
    ],
)
def test_values_that_hang_on_no_float_are_known(looks: str, steps: int) -> None:
    """Models of language ask whether a mask has a zero, how far positions go, whether the first token is padding."""
    text = f"ids = x[0]\n        return sum(self.f.weight @ self.f.weight.T for _ in range({looks}))"
    counted = count(problem("self.f = nn.Linear(8, 4)", text, inputs="[torch.randint(9, (4, 8))]"), torch.float32)
    assert counted.cost.operations == steps * 2 * 4 * 8 * 4


@pytest.mark.parametrize(
    "looks",
    ["torch.rand(3).max().item()", "torch.empty(3).max().item()", "torch.ones(4, 8).mul_(x[0]).max().item()"],
)
def test_values_that_nobody_knows_are_not_made_up(looks: str) -> None:
    with pytest.raises(Uncountable, match="looks at values"):
        count(problem("self.f = nn.Linear(8, 4)", f"return x[0] * int({looks})"), torch.float32)


@pytest.mark.parametrize("whose", ["x[0]", "torch.empty_like(x[0])", "self.f.weight.view(-1)"])
def test_nobody_is_given_an_address_that_is_none(whose: str) -> None:
    """Triton would launch a kernel with it: an illegal access, after which a process has no GPU."""
    asks = problem("self.f = nn.Linear(8, 4)", f"return self.f(x[0]) * {whose}.data_ptr()")
    with pytest.raises(Uncountable, match="launches a kernel of its own") as told:
        count(asks, torch.float32)
    assert told.value.least is not None and told.value.least.parameters == 8 * 4 + 4


def test_a_datasheet_is_found_by_the_cards_name() -> None:
    assert datasheet_ceilings("H100", "float32").tflops == 67.0
    assert datasheet_ceilings("nvidia a100 80gb", "bfloat16").copy_gbps == 2039.0
    with pytest.raises(UsageError, match="unknown GPU 'H1000': did you mean 'H100'"):
        datasheet_ceilings("H1000", "float32")


def of_folder(path: Path) -> list[Listed]:
    suite = Selection(suite=str(path)).load("float32", "cpu")
    return list(listed(suite, "float32", datasheet_ceilings("H100", "float32")))


def test_a_listing_says_of_each_problem_what_it_could_not_count(tmp_path: Path) -> None:
    (tmp_path / "1_sound.py").write_text(LINEAR.format(width=4096))
    (tmp_path / "2_absent.py").write_text("import no_such_package\n" + LINEAR.format(width=8))
    looks = PROBLEM.format(
        construct="pass", forward="return x[0] * x[0].max().item()", inputs="[torch.rand(1000, 670)]"
    )
    (tmp_path / "3_looks.py").write_text(looks)
    sound, absent, partly = of_folder(tmp_path)
    assert (sound.bound, sound.reason, sound.at_least) == ("memory", "", False)
    assert sound.floor_ms == pytest.approx(4 * (16 * 4096 + 4096 * 32 + 32 + 16 * 32) / 3350e6)
    assert absent.floor_ms is None
    assert absent.reason == "fails to load: ModuleNotFoundError: No module named 'no_such_package'"
    assert (partly.at_least, partly.operations, partly.bound) == (True, None, None)
    assert partly.floor_ms == pytest.approx(4 * 670e3 / 3350e6)


def test_admission_marks_what_cannot_tell_and_unmarks_what_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "marks.json"
    table.write_text("{}")
    monkeypatch.setattr(marks, "TABLE", table)
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "1_a.py").write_text(LINEAR.format(width=8))
    (entry,) = Selection(suite=str(folder)).load("float32", "cpu").entries

    def found(status: Any, dtype: str) -> Admission:
        return Admission(
            problem=entry.name,
            problem_sha256=entry.source.sha256,
            dtype=dtype,
            environment=describe(torch.device("cpu")),
            status=status,
            reason="" if status == "valid" else "zeros pass",
            mutants=(MutantRecord(name="constant", outcome="killed"),),
        )

    assert marks.degenerate(entry.source.sha256) is None
    marks.enter([found("invalid_problem", "float32"), found("invalid_problem", "float16")])
    assert marks.degenerate(entry.source.sha256) == marks.degenerate(entry.source.sha256, "float16") == "zeros pass"
    assert marks.degenerate(entry.source.sha256, "bfloat16") is None
    assert of_folder(folder)[0].degenerate == "zeros pass"
    marks.enter([found("valid", "float32"), found("skipped", "float16")])
    assert (marks.degenerate(entry.source.sha256, "float32"), marks.degenerate(entry.source.sha256, "float16")) == (
        None,
        "zeros pass",
    )
    assert of_folder(folder)[0].admitted and of_folder(folder)[0].degenerate is None
    marks.enter([found("valid", "float16")])
    assert marks.degenerate(entry.source.sha256) is None
    (mark,) = json.loads(table.read_text()).values()
    assert mark["reasons"] == {"float32": "", "float16": ""}


@pytest.mark.parametrize("decided", [0, 2, 3])
def test_a_listing_says_on_how_many_problems_admission_did_not_decide(
    decided: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was too large for the machine looked as sound as what was looked at."""
    suite = Selection(source=str(checkout(tmp_path)), level=["3"]).load("float32", "cpu")
    table = tmp_path / "marks.json"
    table.write_text(
        json.dumps({e.source.sha256: {"problem": e.name, "reasons": {"float32": ""}} for e in suite.entries[:decided]})
    )
    monkeypatch.setattr(marks, "TABLE", table)
    ceilings = datasheet_ceilings("H100", "float32")
    records = list(listed(suite, "float32", ceilings))
    assert sum(record.admitted for record in records) == decided
    said = {0: ", not admitted in float32", 2: ", 1 not admitted in float32", 3: ""}[decided]
    said += "" if decided else " (`kernelyard problem check` finds which are degenerate)"
    assert listing_head(suite, records) == f"kernelbench: 3 problems{said}; suite {suite.sha256[:16]}"
    assert f"another: 3 problems{said}; suite" in listing_head(replace(suite, name="another"), records)
    assert "admitted" not in listing_head(replace(suite, name="library"), records), "its operators have their own tests"


def test_marks_are_entered_in_a_checkout_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks.demand_checkout()
    monkeypatch.setattr(marks, "CHECKOUT", tmp_path)
    with pytest.raises(UsageError, match="--mark enters into a checkout's own table"):
        marks.demand_checkout()


def test_the_packages_own_table_can_be_read() -> None:
    assert isinstance(marks._marks(marks.TABLE), dict)


HUGGING = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM

config = AutoConfig.from_pretrained("gpt2")

class Model(torch.nn.Module):
    def __init__(self, name, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name, config=config)

    def forward(self, x):
        return self.model(x)

def get_inputs():
    return [torch.rand(2, config.width)]

def get_init_inputs():
    return ["gpt2", config]
"""


class Config(types.SimpleNamespace):
    """A stand-in for transformers' AutoConfig on a machine without the Hub."""

    @classmethod
    def from_pretrained(cls, name: str, **_: Any) -> "Config":
        raise OSError("We couldn't connect to the Hub")

    @classmethod
    def for_model(cls, kind: str, **differing: Any) -> "Config":
        assert (kind, differing) == CONFIGS["gpt2"]
        return cls(width=8)


class Causal:
    """A stand-in for AutoModelForCausalLM."""

    @classmethod
    def from_pretrained(cls, name: str, **_: Any) -> Any:
        raise OSError("no weights here")

    @classmethod
    def from_config(cls, config: Config) -> Any:
        return torch.nn.Linear(config.width, 3)


def test_a_model_of_hugging_faces_is_counted_without_weights_and_without_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1_gpt2.py").write_text(HUGGING)
    transformers = types.ModuleType("transformers")
    utils = types.ModuleType("transformers.utils")
    said = types.SimpleNamespace(get_verbosity=lambda: 3, set_verbosity_error=lambda: None, set_verbosity=[].append)
    transformers.AutoConfig, transformers.AutoModelForCausalLM = Config, Causal  # type: ignore[attr-defined]
    utils.logging = said  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.setitem(sys.modules, "transformers.utils", utils)
    (record,) = of_folder(tmp_path)
    assert (record.parameters, record.operations) == (8 * 3 + 3, 2 * 2 * 8 * 3)
    # A judge that loads the same file asks the Hub, as the file says.
    with pytest.raises(UsageError, match="OSError: We couldn't connect"):
        Selection(suite=str(tmp_path)).load("float32", "cpu").entries[0].load()
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "transformers" in of_folder(tmp_path)[0].reason


@pytest.mark.parametrize("package", IN_EXTRA)
def test_a_package_that_the_extra_installs_is_told_with_the_extra(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f'"{package}"' in re.findall(r"^kernelbench = (.*)", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "1_needs.py").write_text(f"import {package}\n" + LINEAR.format(width=8))
    (record,) = of_folder(tmp_path)
    assert record.reason.startswith("fails to load: ModuleNotFoundError: ")
    assert record.reason.endswith("; `pip install 'kernelyard[kernelbench]'` installs it")
    assert record.reason in listing_notes([record])[0]


@pytest.mark.parametrize("width", [80, 150])
def test_in_a_narrow_table_names_fold_and_numbers_do_not(width: int) -> None:
    name = "98_" + "KLDivLoss_of_a_name_that_is_as_long_as_the_longest_of_KernelBenchs_and_then_some_more.py"
    record = Listed(
        level=1, number=98, name=name, problem_sha256="0", dtype="float32", parameters=123_000_000,
        bytes=12_900_000_000, operations=137_000_000_000, bound="compute", floor_ms=199.4, at_least=True,
        reason="it looks at values", degenerate="zeros pass",
    )  # fmt: skip
    console = Console(width=width)
    with console.capture() as shown:
        console.print(listing_table([record]))
    text = shown.get()
    assert "…" not in text
    for part in ("123 M", "12.9 GB", "137 G", "compute", ">= 199 ms", "operations"):
        assert part in text, text
    assert "".join(line.split("  ")[0].strip() for line in text.splitlines()[1:]) == f"1/{name[:-3]}"
    (note,) = listing_notes([record])
    assert note.endswith(": degenerate: zeros pass; answers and operations not counted: it looks at values")


def test_the_verb_lists_and_renews_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- problems:kernelbench:begin -->\n<!-- problems:kernelbench:end -->\n")
    root = checkout(tmp_path / "checkout")
    options = ["list", "--source", str(root), "--level", "1-2", "--gpu", "H200", "--table", str(page), "--json"]
    result = CliRunner().invoke(problems, options)
    assert result.exit_code == 0, result.output
    assert "8 problems" in result.output
    assert "floors: the datasheet of H200, 4800 GB/s, 67 TFLOPS float32" in result.output
    records = [Listed.model_validate_json(line) for line in result.output.splitlines() if line.startswith("{")]
    assert [(record.level, record.number) for record in records] == [(1, n) for n in (1, 2, 10)] + [
        (2, n) for n in (1, 2, 3, 4, 10)
    ]
    assert "| 2/4_Linear_2 | 1.06 k |" in page.read_text()


def test_a_page_is_not_renewed_where_a_package_is_missing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(held := "<!-- problems:kernelbench:begin -->\nas it was\n<!-- problems:kernelbench:end -->\n")
    root = checkout(tmp_path / "checkout")
    needing = root / "KernelBench/level1/1_Linear_1.py"
    needing.write_text("import a_package_of_nobody\n" + needing.read_text())
    options = ["list", "--source", str(root), "--level", "1", "--gpu", "H200", "--table", str(page)]
    result = CliRunner().invoke(problems, options)
    assert isinstance(result.exception, UsageError)
    assert "not renewed, for 1_Linear_1" in str(result.exception) and "a_package_of_nobody" in str(result.exception)
    assert page.read_text() == held


PROBLEMS = {1: 100, 2: 100, 3: 50, 4: 20}
"""Of KernelBench, by level."""


def counts(markdown: str) -> dict[str, list[str]]:
    """What a table says of each problem, by names like `3/1_MLP`: parameters, bytes, operations, bound and floor."""
    lines = (line.strip("| ").split(" | ") for line in markdown.splitlines() if re.match(r"\| \d/", line))
    return {name: numbers[:5] for name, *numbers in lines}


@pytest.fixture
def page() -> dict[str, list[str]]:
    """What docs/kernelbench.md says of each: counted where all packages were, for it is renewed nowhere else."""
    text = (ROOT / "docs/kernelbench.md").read_text()
    return counts(text.partition("problems:kernelbench:begin")[2].partition("problems:kernelbench:end")[0])


def test_the_page_has_every_problem_of_kernelbench_with_its_floor(page: dict[str, list[str]]) -> None:
    assert {level: sum(name.startswith(f"{level}/") for name in page) for level in PROBLEMS} == PROBLEMS
    for name, numbers in page.items():
        assert len(numbers) == 5 and "-" not in numbers and not numbers[-1].startswith(">="), name


@pytest.mark.skipif("KERNELYARD_KERNELBENCH" not in os.environ, reason="KERNELYARD_KERNELBENCH names no checkout")
@pytest.mark.parametrize("level", PROBLEMS)
def test_every_problem_of_a_checkout_of_kernelbench_is_counted_as_on_the_page(
    level: int, page: dict[str, list[str]]
) -> None:
    """But for those that import what is not installed here, by name: two of level 3 and all of level 4 are such."""
    suite = Selection(source=os.environ["KERNELYARD_KERNELBENCH"], level=[str(level)]).load("float32", "cpu")
    records = list(listed(suite, "float32", datasheet_ceilings("H100", "float32")))
    assert len(records) == len(suite.entries) == PROBLEMS[level]
    absent = [package for package in IN_EXTRA if find_spec(package) is None]
    found = counts(listing_markdown(suite, records, ""))
    left_out: dict[str, str] = {}
    for entry, record in zip(suite.entries, records, strict=True):
        name = f"{level}/{entry.name.removesuffix('.py')}"
        if needs := [
            each for each in absent if re.search(rf"^(from|import) {each}\b", entry.source.text, re.MULTILINE)
        ]:
            assert f"No module named '{needs[0]}'" in record.reason
            left_out[name] = needs[0]
        else:
            assert record.floor_ms and not record.reason and found[name] == page[name]
    if left_out:
        said = f"without {', '.join(sorted(set(left_out.values())))} not counted: {', '.join(left_out)}"
        pytest.skip(f"level {level}, {PROBLEMS[level] - len(left_out)} of {PROBLEMS[level]} as on the page; {said}")
