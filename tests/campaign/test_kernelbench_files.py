"""KernelBench's result files: written in its schema, read back, and never mixed up with what KernelBench wrote."""

import ast
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call
from solutions import write
from typer.testing import CliRunner
from verdicts import ENVIRONMENT, SETTINGS, judged, suite

from kernelyard.campaign import kernelbench_files as files
from kernelyard.campaign.ledger import Ledger
from kernelyard.campaign.records import Foreign, Judged, Key
from kernelyard.cli.main import build
from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Decision, ErrorFigures, Flag, Status, Timing

THEIRS = {
    "sample_id": 1,
    "compiled": True,
    "correctness": True,
    "metadata": {"hardware": "NVIDIA L40S", "device": "cuda:0", "correctness_trials": "(5 / 5)"},
    "runtime": 1.23,
    "runtime_stats": {"mean": 1.23, "std": 0.01, "min": 1.2, "max": 1.3, "num_trials": 100},
}
FIELDS = {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}


def passed(key: Key) -> Judged:
    figures = ErrorFigures(
        output="output", max_abs=0.0, honest_max_abs=0.0, rms=0.0, honest_rms=0.0, max_rel=0.0, honest_max_rel=0.0,
        over_honest=0.0, allowed=8.0, mismatched=0, elements=1,
    )  # fmt: skip
    times = {"timer": "cuda_event", "cache": "cold"}
    one = judged(key)
    update = {
        "status": Status.PASSED, "phase": None, "trials": 3, "errors": (figures,), "timed_outputs_checked": 1,
        "time": Timing(samples_ms=(1.0, 1.0, 2.0, 4.0), **times), "baseline": Timing(samples_ms=(4.0,), **times),
        "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "noise": 0.0, "decision": Decision.FASTER, "rounds": 3,
    }  # fmt: skip
    return one.model_copy(update={"verdict": one.verdict.model_copy(update=update)})


def test_entries_have_kernelbenchs_fields(tmp_path: Path) -> None:
    verdicts = [passed(Key(1, 2, 0)), judged(Key(1, 10, 0)), judged(Key(1, 10, 1), Status.INFRA_ERROR)]
    assert files.export(tmp_path, verdicts, []) == [tmp_path / files.RESULTS, tmp_path / files.PASS_AT_K]
    written = json.loads((tmp_path / files.RESULTS).read_text())
    assert list(written) == ["2", "10"], "sorted as numbers, and a machine's fault is no entry"
    (good,), (bad,) = written.values()
    assert good.keys() == bad.keys() == FIELDS
    assert good["compiled"] and good["correctness"] and good["runtime"] == 2.0
    assert good["runtime_stats"] == {
        "mean": 2.0, "std": 1.22, "min": 1.0, "max": 4.0, "num_trials": 4, "hardware": "a CPU", "device": "cpu"
    }  # fmt: skip
    assert good["metadata"]["correctness_trials"] == "(3 / 3)" and good["metadata"]["decision"] == "faster"
    assert not bad["correctness"] and bad["runtime"] == -1.0 and bad["metadata"]["status"] == "crashed"
    hashes = ("problem_sha256", "solution_sha256")
    assert [good["metadata"][name] for name in hashes] == ["p", "s"], "which text it is of"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("changes", "credited", "told"),
    [
        ({"confirmed": False, "decision": Decision.INCONCLUSIVE}, 1.0, 2.0),
        ({"confirmed": True, "told": 4.0}, 2.0, 4.0),
        ({"confirmed": True}, 2.0, 2.0),
    ],
)
def test_an_entry_says_what_of_its_gain_counts(changes: dict[str, Any], credited: float, told: float) -> None:
    """Its runtime is KernelBench's to divide by, and may be the worker's word alone."""
    one = passed(Key(1, 2, 0))
    flags = (Flag(name="uncertified_gain", evidence="less is shown"), Flag(name="bits_differ", evidence="they do"))
    verdict = one.verdict.model_copy(update={**changes, "flags": flags})
    entry = files.entry(one.model_copy(update={"verdict": verdict}))
    assert (entry["runtime"], entry["metadata"]["speedup"]) == (2.0, 2.0)
    assert (entry["metadata"]["credited"], entry["metadata"]["told"]) == (credited, told)
    assert entry["metadata"]["flags"] == ["uncertified_gain", "bits_differ"]


def test_a_run_begun_in_kernelbench_is_finished_here(tmp_path: Path) -> None:
    (tmp_path / files.RESULTS).write_text(json.dumps({"1": [{**THEIRS, "sample_id": 0}, THEIRS]}))
    keys = [Key(1, 1, 0), Key(1, 1, 1), Key(1, 1, 2)]
    with Ledger(tmp_path, create=True) as ledger:
        ledger.begin(suite(), SETTINGS, ENVIRONMENT)
        ledger.take_over(files.foreign_outcomes(tmp_path, {1}))
        assert [one.key for one in ledger.foreign()] == keys[:2]
        ledger.finish(passed(keys[2]))
        files.export(tmp_path, ledger.judged(), ledger.foreign())
        first, second, ours = json.loads((tmp_path / files.RESULTS).read_text())["1"]
        assert (first["sample_id"], second, ours["sample_id"]) == (0, THEIRS, 2)
        # Our own entries are none of KernelBench's when the file is read again.
        assert [one.key for one in files.foreign_outcomes(tmp_path, {1})] == keys[:2]
        ledger.finish(judged(keys[1]))
        files.export(tmp_path, ledger.judged(), ledger.foreign())
        assert [each["correctness"] for each in json.loads((tmp_path / files.RESULTS).read_text())["1"]] == [
            True,
            False,
            True,
        ]


def test_levels_have_files_of_their_own(tmp_path: Path) -> None:
    foreign = Foreign(level=2, problem=1, sample=1, outcome=THEIRS)
    files.export(tmp_path, [passed(Key(1, 1, 0))], [foreign])
    assert json.loads((tmp_path / "level_2" / files.RESULTS).read_text()) == {"1": [THEIRS]}
    assert files.foreign_outcomes(tmp_path, {1, 2}) == [foreign]
    (tmp_path / files.RESULTS).write_text(json.dumps({"1": [{**THEIRS, "sample_id": 0}]}))
    with pytest.raises(UsageError, match=r"of one level, and the run of \[1, 2\]; expected it in .*level_1"):
        files.foreign_outcomes(tmp_path, {1, 2})


def test_the_file_of_the_time_when_there_was_one_level_goes(tmp_path: Path) -> None:
    """Else it would be taken for the results of whichever level comes next."""
    foreign = Foreign(level=1, problem=1, sample=1, outcome=THEIRS)
    files.export(tmp_path, [], [foreign])
    assert (tmp_path / files.RESULTS).exists() and (tmp_path / files.PASS_AT_K).exists()
    files.export(tmp_path, [passed(Key(2, 1, 0))], [foreign])
    assert not (tmp_path / files.RESULTS).exists() and not (tmp_path / files.PASS_AT_K).exists()
    assert json.loads((tmp_path / "level_1" / files.RESULTS).read_text()) == {"1": [THEIRS]}


def test_what_kernelbench_came_to_stays_in_its_file(tmp_path: Path) -> None:
    """Whatever is chosen, retried or could not be judged: an export writes the file anew."""
    theirs = {str(n): [{**THEIRS, "sample_id": 0}] for n in (1, 2, 3)}
    (tmp_path / files.RESULTS).write_text(json.dumps(theirs))
    with Ledger(tmp_path, create=True) as ledger:
        ledger.begin(suite(), SETTINGS, ENVIRONMENT)
        ledger.finish(judged(Key(1, 2, 0), Status.INFRA_ERROR))
        ledger.finish(passed(Key(1, 3, 0)))
    for _ in range(2):
        assert CliRunner().invoke(build("run"), ["run", str(tmp_path), "--export"]).exit_code == 0
        written = json.loads((tmp_path / files.RESULTS).read_text())
        assert [written["1"], written["2"]] == [theirs["1"], theirs["2"]]
        assert "kernelyard" in written["3"][0]["metadata"][files.JUDGE]


def test_an_export_takes_no_other_option_and_needs_a_verdict(tmp_path: Path, kernelyard: Call) -> None:
    with Ledger(tmp_path, create=True) as ledger:
        ledger.begin(suite(), SETTINGS, ENVIRONMENT)
    done = kernelyard("run", str(tmp_path), "--export", "--again", "--dtype", "bf16", cwd=tmp_path)
    assert done.returncode == 2 and "takes no --dtype, --again" in done.stderr
    done = kernelyard("run", str(tmp_path), "--export", cwd=tmp_path)
    assert done.returncode == 2 and "no verdict to export" in done.stderr


def test_a_run_that_is_refused_leaves_no_ledger(tmp_path: Path, kernelyard: Call) -> None:
    write(tmp_path / "problems", tmp_path / "run")
    (tmp_path / "run" / files.RESULTS).write_text("{")
    done = kernelyard("run", str(tmp_path / "run"), "--suite", str(tmp_path / "problems"), cwd=tmp_path)
    assert done.returncode == 2 and "cannot be read" in done.stderr
    assert not list((tmp_path / "run").glob("*.sqlite*"))


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", '{"one": []}', '{"1": [{}]}', '{"1": [3]}', '{"1": [{"sample_id": "x"}]}',
        '{"1": [{"compiled": true, "correctness": true, "runtime": null}]}',
        '{"1": [{"compiled": true, "correctness": "yes", "runtime": 1.0}]}',
        '{"1": [{"compiled": true, "correctness": true, "runtime": 1.0, "metadata": "said"}]}',
        f'{{"1": [{{"compiled": true, "correctness": true, "runtime": 1{400 * "0"}}}]}}',
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / files.RESULTS).write_text(text)
    with pytest.raises(UsageError) as error:
        files.read(tmp_path / files.RESULTS)
    assert "\n" not in str(error.value) and files.RESULTS in str(error.value)


def test_a_sample_that_is_there_twice_is_said(tmp_path: Path) -> None:
    """Any of them, and wherever the file is read: it would be counted twice, and KernelBench's script stops."""
    (tmp_path / files.RESULTS).write_text(json.dumps({"1": [{**THEIRS, "sample_id": 0}], "2": [THEIRS, THEIRS]}))
    with pytest.raises(UsageError, match="problem 2 has sample 1 2 times"):
        files.read(tmp_path / files.RESULTS)


def test_trials_are_counted_where_all_were_made(tmp_path: Path) -> None:
    failed = judged(Key(1, 1, 0), Status.INCORRECT_VALUE)
    failed = failed.model_copy(update={"verdict": failed.verdict.model_copy(update={"trials": 1})})
    assert "correctness_trials" not in files.entry(failed)["metadata"]
    assert files.entry(passed(Key(1, 1, 0)))["metadata"]["correctness_trials"] == "(3 / 3)"


def test_one_entry_for_each_problem_is_read(tmp_path: Path) -> None:
    """As KernelBench wrote before it knew samples."""
    old = {name: value for name, value in THEIRS.items() if name != "sample_id"}
    (tmp_path / files.RESULTS).write_text(json.dumps({"3": old}))
    assert files.read(tmp_path / files.RESULTS) == {3: [{**old, "sample_id": 0}]}


def test_pass_at_k() -> None:
    entry = {"compiled": True, "correctness": False}
    results = {"1": [entry, {**entry, "correctness": True}], "2": [entry] * 2}
    told = files.pass_at_k(results)
    assert told["problems"] == {
        "1": {"total_samples": 2, "correct_samples": 1, "pass@1": 0.5},
        "2": {"total_samples": 2, "correct_samples": 0, "pass@1": 0.0},
    }
    assert told["averages"] == {"avg_pass@1": 0.25} and told["metadata"]["pass@1_count"] == 2


@pytest.mark.skipif("KERNELYARD_KERNELBENCH" not in os.environ, reason="KERNELYARD_KERNELBENCH names no checkout")
def test_pass_at_k_is_kernelbenchs(tmp_path: Path) -> None:
    """Their functions, out of their script, on results of uneven numbers of samples."""
    script = Path(os.environ["KERNELYARD_KERNELBENCH"], "scripts/eval_from_generations.py").read_text()
    wanted = ("calc_pass_at_k", "calculate_pass_at_k")
    tree = ast.parse(script)
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    theirs: dict[str, Any] = {"np": np, "json": json, "os": os}
    exec(compile(tree, "theirs", "exec"), theirs)
    draw = np.random.default_rng(1)
    results = {
        str(problem): [
            {"compiled": True, "correctness": bool(draw.random() < 0.3)} for _ in range(int(draw.integers(1, 12)))
        ]
        for problem in range(1, 30)
    }
    (tmp_path / files.RESULTS).write_text(json.dumps(results))
    expected = theirs["calculate_pass_at_k"](str(tmp_path / files.RESULTS), [1, 5, 10])
    ours = files.pass_at_k(results, [1, 5, 10])
    assert ours["metadata"] == expected["metadata"]
    assert ours["averages"] == pytest.approx(expected["averages"], rel=1e-12)
    for problem, told in expected["problems"].items():
        assert ours["problems"][problem] == pytest.approx(told, rel=1e-12)
