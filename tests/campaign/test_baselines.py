"""Baselines: kept with what they hold for, never found for anything else, readable by KernelBench's script."""

import ast
import errno
import fcntl
import json
import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from command_line import Call
from typer.testing import CliRunner
from verdicts import ENVIRONMENT

from kernelyard.campaign import baselines as module
from kernelyard.campaign import measuring
from kernelyard.campaign.baselines import (
    FILES,
    LEDGER,
    Baseline,
    BaselineFolder,
    Variant,
    read_kernelbench,
)
from kernelyard.campaign.kernelbench_files import statistics
from kernelyard.campaign.measuring import Request, _call, measure_all
from kernelyard.cli.main import build
from kernelyard.core.environment import describe
from kernelyard.core.errors import UsageError
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Timing
from kernelyard.judge.statistics import paired_ratio
from kernelyard.suites.kernelbench import problem_of
from kernelyard.suites.suite import Entry

PROBLEM = """
import os
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        {what}
        return x + 1

def get_inputs():
    return [torch.rand(64)]

def get_init_inputs():
    return []
"""


def times(milliseconds: float, cache: str = "cold") -> Timing:
    return Timing(
        samples_ms=tuple(milliseconds * (1 + place % 5 / 100) for place in range(70)), timer="host", cache=cache
    )


def baseline(name: str = "1_Softmax.py", problem: str = "p", level: int = 1, **changes: object) -> Baseline:
    fields: dict[str, object] = {
        "level": level,
        "problem": int(name.partition("_")[0]),
        "problem_name": name,
        "problem_sha256": problem,
        "dtype": "float32",
        "times": {Variant.EAGER: times(2.0), Variant.COMPILE: times(1.0)},
        "failures": {Variant.CUDAGRAPHS: "needs a GPU"},
        "environment": ENVIRONMENT,
        "seconds": 3.0,
    }
    return Baseline.model_validate({**fields, **changes})


def entry(number: int, what: str) -> Entry:
    source = Source(Path(f"{number}_made_up.py"), PROBLEM.format(what=what))
    return Entry(1, number, source.path.name, source, partial(problem_of, source))


def test_a_baseline_is_found_for_the_same_text_dtype_mode_and_device_alone(tmp_path) -> None:
    BaselineFolder(tmp_path, []).add(baseline())
    folder = BaselineFolder.read(tmp_path)
    assert folder.find("p", "float32", "a CPU", False) == baseline()
    assert folder.find("another text", "float32", "a CPU", False) is None
    assert folder.find("p", "bfloat16", "a CPU", False) is None
    assert folder.find("p", "float32", "another CPU", False) is None
    assert folder.find("p", "float32", "a CPU", True) is None


def test_the_newest_measurement_of_a_text_counts(tmp_path) -> None:
    folder = BaselineFolder(tmp_path, [])
    folder.add(baseline())
    assert folder.find("p", "float32", "a CPU", False) == baseline()
    folder.add(baseline(times={Variant.EAGER: times(5.0)}))
    assert folder.find("p", "float32", "a CPU", False).times[Variant.EAGER] == times(5.0)
    assert BaselineFolder.read(tmp_path).find("p", "float32", "a CPU", False).best is Variant.EAGER


def test_a_line_that_a_kill_cut_short_costs_that_line(tmp_path) -> None:
    folder = BaselineFolder(tmp_path, [])
    folder.add(baseline())
    path = tmp_path / LEDGER
    path.write_text(path.read_text() + baseline("2_x.py").model_dump_json()[:100])
    folder = BaselineFolder.read(tmp_path)
    assert len(folder.entries) == 1
    folder.add(baseline("3_y.py", "q"))
    assert [each.problem for each in BaselineFolder.read(tmp_path).entries] == [1, 3]


def test_a_kill_within_the_first_line_leaves_nothing_that_is_none(tmp_path) -> None:
    (tmp_path / LEDGER).write_text(baseline().model_dump_json()[:200])
    assert BaselineFolder.read(tmp_path).entries == []
    for count in (1, 2):
        folder = BaselineFolder.read(tmp_path)
        folder.add(baseline())
        assert len(BaselineFolder.read(tmp_path).entries) == count


def test_a_disk_that_is_full_costs_no_measurement(tmp_path, monkeypatch) -> None:
    """The file is never written anew: what it holds is cut behind its last whole line."""
    folder = BaselineFolder(tmp_path, [])
    folder.add(baseline())
    path = tmp_path / LEDGER
    path.write_text(path.read_text() + "{cut")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("write_text", "write_bytes"):
        monkeypatch.setattr(Path, name, full)
    folder.add(baseline("2_x.py", "q"))
    assert [each.problem for each in BaselineFolder.read(tmp_path).entries] == [1, 2]


def test_what_was_tried_before_is_measured_beside_what_is_asked_for_now(tmp_path, monkeypatch) -> None:
    """The newest entry takes the older one's place: with less in it, the opponent would be a weaker one."""
    asked = []

    def measure(entries, request, _timeout):
        asked.append((len(entries), request.variants))
        for one in entries:
            times_of = {variant: times(1.0) for variant in request.variants}
            name = {"problem_name": one.name, "problem": one.number, "problem_sha256": one.source.sha256}
            here = describe(torch.device("cpu"))
            yield one, baseline(times=times_of, failures={}, environment=here).model_copy(update=name)

    monkeypatch.setattr("kernelyard.cli.baseline.measure_all", measure)
    problems = tmp_path / "problems"
    problems.mkdir()
    for number in (1, 2):
        (problems / f"{number}_made_up.py").write_text(PROBLEM.format(what=f"_ = {number}"))
        words = ["baseline", "--suite", str(problems), "--device", "cpu", "--out", str(tmp_path / "timing")]
        done = CliRunner().invoke(build("baseline"), [*words, "--variants", "compile"])
        assert done.exit_code == 0, done.output
    assert CliRunner().invoke(build("baseline"), [*words, "--variants", "max-autotune"]).exit_code == 0
    eager, compiled, tuned = Variant.EAGER, Variant.COMPILE, Variant.MAX_AUTOTUNE
    assert asked == [(1, (eager, compiled)), (1, (eager, compiled)), (2, (eager, compiled, tuned))]


def test_samples_that_lie_wide_apart_are_said_once(tmp_path, monkeypatch) -> None:
    """Kept they are, and measured again if that is asked for: so the line comes each time, and says how."""
    here = describe(torch.device("cpu"))
    disturbed = Timing(samples_ms=(0.1,) * 10 + (0.16,) * 10, timer="host", cache="cold")
    quiet: list[bool] = []

    def measure(entries, _request, _timeout):
        for one in entries:
            compiled = disturbed if one.number == 2 and not quiet else times(1.0)
            name = {"problem_name": one.name, "problem": one.number, "problem_sha256": one.source.sha256}
            both = {Variant.EAGER: times(2.0), Variant.COMPILE: compiled}
            yield one, baseline(times=both, failures={}, environment=here).model_copy(update=name)

    monkeypatch.setattr("kernelyard.cli.baseline.measure_all", measure)
    for number in (1, 2, 3):
        (tmp_path / f"{number}_made_up.py").write_text(PROBLEM.format(what=f"_ = {number}"))
    words = ["baseline", "--suite", str(tmp_path), "--device", "cpu", "--out", str(tmp_path / "timing")]
    words += ["--variants", "compile"]
    for before in ("0 measured before", "3 measured before"):
        done = CliRunner().invoke(build("baseline"), words)
        assert done.exit_code == 0 and before in done.stdout, done.output
        assert done.stderr.startswith("kernelyard: 1 of 3 stored baselines may have been disturbed")
        assert "2_made_up.py, compile, whose 80th percentile is 1.6 times the 20th" in done.stderr
        assert done.stderr.count("\n") == 1 and "measure them --again" in done.stderr
    quiet.append(True)
    done = CliRunner().invoke(build("baseline"), [*words, "--again"])
    assert done.exit_code == 0 and "3 measured before, which are measured again" in done.stdout and not done.stderr


def test_a_damaged_ledger_is_said(tmp_path) -> None:
    (tmp_path / LEDGER).write_text("no baseline\n" + baseline().model_dump_json() + "\n")
    with pytest.raises(UsageError, match=rf"{LEDGER}:1: no baseline"):
        BaselineFolder.read(tmp_path)


@pytest.mark.parametrize(
    "samples", [{Variant.COMPILE: 8}, {Variant.EAGER: 1, Variant.COMPILE: 1}, {Variant.EAGER: 8, Variant.COMPILE: 1}]
)
def test_a_line_that_no_ratio_can_be_made_of_is_said(tmp_path, samples: dict[Variant, int]) -> None:
    line = json.loads(baseline().model_dump_json())
    one = line["times"]["eager"]
    line["times"] = {variant.value: one | {"samples_ms": [1.0] * count} for variant, count in samples.items()}
    (tmp_path / LEDGER).write_text(json.dumps(line) + "\n")
    with pytest.raises(UsageError, match=rf"{LEDGER}:1: no baseline \(expected a time of eager, and 2 samples"):
        BaselineFolder.read(tmp_path)


def test_variants_of_fewer_samples_are_compared_by_fewer_spans() -> None:
    few = Timing(samples_ms=(1.0, 1.0, 1.0), timer="host", cache="cold")
    assert baseline(times={Variant.EAGER: times(2.0), Variant.COMPILE: few}).gain(Variant.COMPILE).mean > 1.9


def test_what_another_process_is_writing_is_waited_for(tmp_path) -> None:
    """Its line is half there: taken for what a kill cut short, it would be lost."""
    folder = BaselineFolder(tmp_path, [])
    folder.add(baseline())
    line = baseline("2_x.py", "q").model_dump_json().encode() + b"\n"
    adding = threading.Thread(target=folder.add, args=(baseline("3_y.py", "r"),))
    with (tmp_path / LEDGER).open("ab", buffering=0) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(line[:100])
        adding.start()
        adding.join(0.2)
        other.write(line[100:])
    adding.join(10)
    assert [each.problem for each in BaselineFolder.read(tmp_path).entries] == [1, 2, 3]


def test_the_view_has_what_another_process_measured(tmp_path) -> None:
    ours, others = BaselineFolder(tmp_path, []), BaselineFolder(tmp_path, [])
    ours.add(baseline())
    others.add(baseline("2_x.py", "q"))
    assert set(read_kernelbench(ours.write_kernelbench()[0]).level(1)) == {"1_Softmax.py", "2_x.py"}


def test_a_variant_without_a_time_left_loses_its_view_and_no_strangers(tmp_path) -> None:
    folder = BaselineFolder(tmp_path, [])
    folder.add(baseline())
    folder.write_kernelbench()
    theirs = tmp_path / FILES[Variant.MAX_AUTOTUNE]
    theirs.write_text("{}")
    folder.add(baseline(problem="a newer text", times={Variant.EAGER: times(2.0)}))
    assert [path.name for path in folder.write_kernelbench()] == [FILES[Variant.EAGER]]
    assert not (tmp_path / FILES[Variant.COMPILE]).exists() and theirs.read_text() == "{}"


@pytest.mark.parametrize("inputs", [[3], [[torch.zeros(1)]], [{"x": torch.zeros(1)}]])
def test_the_device_is_the_requests_whatever_the_inputs_are(monkeypatch, inputs: list[object]) -> None:
    """A list of tensors was taken for none, and a GPU recorded as lacking one for good."""
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    call = partial(_call, torch.nn.Identity(), inputs, Variant.CUDAGRAPHS)
    assert call(torch.device("cuda"))() is inputs[0]
    with pytest.raises(UsageError, match="needs a GPU"):
        call(torch.device("cpu"))


AS_KERNELBENCH = {
    Variant.EAGER: None,
    Variant.COMPILE: {"backend": "inductor", "mode": "default"},
    Variant.MAX_AUTOTUNE: {"backend": "inductor", "mode": "max-autotune"},
    Variant.CUDAGRAPHS: {"backend": "cudagraphs"},
}
"""What its `generate_baseline_time.py` gives torch.compile; eager is not compiled."""


@pytest.fixture
def compilations(monkeypatch) -> list[dict[str, object]]:
    """What torch.compile is called with; what it makes is the model itself."""
    given: list[dict[str, object]] = []

    def compiled(model: torch.nn.Module, **options: object) -> torch.nn.Module:
        given.append(options)
        return model

    monkeypatch.setattr(torch, "compile", compiled)
    return given


@pytest.mark.parametrize("variant", Variant)
def test_each_variant_is_compiled_as_kernelbench_does(compilations, variant: Variant) -> None:
    x = torch.zeros(1)
    assert _call(torch.nn.Identity(), [x], variant, torch.device("cuda"))() is x
    assert compilations == [options for options in [AS_KERNELBENCH[variant]] if options is not None]


def test_what_is_asked_for_is_what_is_measured(compilations) -> None:
    """Each under its own name, and eager beside it whether or not it was asked for."""
    timed = (Variant.COMPILE, Variant.MAX_AUTOTUNE)
    request = Request(torch.device("cpu"), "float32", False, (*timed, Variant.CUDAGRAPHS))
    found = measuring.measure(entry(1, "pass").load(), request)
    assert compilations == [AS_KERNELBENCH[variant] for variant in timed]
    assert set(found.times) == {Variant.EAGER, *timed}
    assert found.failures == {Variant.CUDAGRAPHS: "needs a GPU"}


def test_a_time_is_of_the_variant_that_it_stands_under(monkeypatch) -> None:
    seconds = {Variant.EAGER: 0.0, Variant.COMPILE: 0.03, Variant.MAX_AUTOTUNE: 0.1}  # apart on a loaded machine, too
    monkeypatch.setattr(measuring, "SAMPLE_SECONDS", 0.05)
    monkeypatch.setattr(measuring, "_call", lambda _model, _inputs, variant, _: lambda: time.sleep(seconds[variant]))
    found = measuring.measure(entry(1, "pass").load(), Request(torch.device("cpu"), "float32", False, tuple(seconds)))
    assert sorted(found.times, key=lambda variant: found.times[variant].p50_ms) == list(seconds)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), tuple(Variant)),
        (("--variants", "max-autotune,compile"), (Variant.EAGER, Variant.MAX_AUTOTUNE, Variant.COMPILE)),
        (("--variants", "cudagraphs"), (Variant.EAGER, Variant.CUDAGRAPHS)),
    ],
)
def test_all_variants_are_measured_or_those_asked_for_and_eager(
    tmp_path, kernelyard: Call, monkeypatch, options: tuple[str, ...], wanted: tuple[Variant, ...]
) -> None:
    asked: list[tuple[Variant, ...]] = []
    monkeypatch.setattr(
        "kernelyard.cli.baseline.measure_all", lambda _, request, __: asked.append(request.variants) or ()
    )
    (tmp_path / "1_made_up.py").write_text(PROBLEM.format(what="pass"))
    done = kernelyard("baseline", "--suite", tmp_path / "1_made_up.py", "--device", "cpu", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [set(each) for each in asked] == [set(wanted)]


@pytest.mark.skipif("KERNELYARD_KERNELBENCH" not in os.environ, reason="KERNELYARD_KERNELBENCH names no checkout")
def test_files_and_options_are_those_of_kernelbenchs_script() -> None:
    """It is run on a recorder in place of its own measuring: what it would time, and into which file."""
    script = Path(os.environ["KERNELYARD_KERNELBENCH"], "scripts/generate_baseline_time.py").read_text()
    tree = ast.parse(script)
    (main,) = (node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test))
    theirs: dict[str, dict[str, object] | None] = {}

    def record(use_torch_compile, torch_compile_backend, torch_compile_options, file_name, **_):
        given = {"backend": torch_compile_backend} | ({"mode": torch_compile_options} if torch_compile_options else {})
        theirs[Path(file_name).name] = given if use_torch_compile else None

    known = {"record_baseline_times": record, "input": lambda _: "", "os": os, "TIMING_DIR": ""}
    exec(compile(ast.Module(main.body, []), "theirs", "exec"), known)
    assert {name: theirs[name] for name in FILES.values()} == {FILES[each]: AS_KERNELBENCH[each] for each in Variant}


def test_a_folder_is_of_one_device_and_dtype_and_never_overwrites_others(tmp_path) -> None:
    folder = BaselineFolder(tmp_path, [baseline()])
    folder.fits(ENVIRONMENT, "float32", False)
    elsewhere = ENVIRONMENT.model_copy(update={"device_name": "another CPU"})
    for unlike in ((ENVIRONMENT, "bfloat16", False), (elsewhere, "float32", False), (ENVIRONMENT, "float32", True)):
        with pytest.raises(UsageError, match="expected another --hardware"):
            folder.fits(*unlike)
    (tmp_path / FILES[Variant.EAGER]).write_text("{}")
    with pytest.raises(UsageError, match="not measured by this"):
        BaselineFolder.read(tmp_path).fits(ENVIRONMENT, "float32", False)


def test_kernelbench_files_say_what_was_measured_and_leave_out_what_failed(tmp_path) -> None:
    folder = BaselineFolder(tmp_path, [])
    folder.add(baseline("10_Late.py", "b"))
    folder.add(baseline("2_Early.py", "a"))
    folder.add(baseline("2_Early.py", "a newer text", times={Variant.EAGER: times(4.0)}))
    written = folder.write_kernelbench()
    assert [path.name for path in written] == [FILES[Variant.EAGER], FILES[Variant.COMPILE]]
    eager, compiled = (json.loads(path.read_text())["level1"] for path in written)
    assert list(eager) == ["2_Early.py", "10_Late.py"]
    assert eager["2_Early.py"]["mean"] == 4.08
    assert list(compiled) == ["10_Late.py"]
    read = read_kernelbench(written[0])
    assert read.level(1) == {"2_Early.py": 4.08, "10_Late.py": 2.04}
    assert read.level(2) == {}
    assert read.hardware == ("a CPU",)


def test_stats_have_kernelbench_digits() -> None:
    """Computed with `get_timing_stats` of KernelBench 423217d on the same samples."""
    assert statistics([1.23456, 0.98765, 12.3456], "a GPU", "cuda:0") == {
        "mean": 4.86, "std": 5.3, "min": 0.988, "max": 12.3, "num_trials": 3, "hardware": "a GPU", "device": "cuda:0",
    }  # fmt: skip


def test_a_null_of_theirs_is_no_time_and_a_stranger_is_no_baseline(tmp_path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"level1": {"1_a.py": None, "2_b.py": {"mean": 3}}}))
    assert read_kernelbench(path).level(1) == {"2_b.py": 3.0}
    for text in ("[]", "{", '{"level1": {"1_a.py": {"median": 1}}}'):
        path.write_text(text)
        with pytest.raises(UsageError, match="no baseline file of KernelBench's"):
            read_kernelbench(path)


def test_the_gain_of_a_variant_is_paired_by_spans_of_time() -> None:
    """Both drift alike, and the ratio does not."""
    drift = [1 + place / 20 for place in range(70)]
    eager = Timing(samples_ms=tuple(3 * d for d in drift), timer="host", cache="cold")
    compiled = Timing(samples_ms=tuple(2 * d for d in drift[::2]), timer="host", cache="cold")
    found = baseline(times={Variant.EAGER: eager, Variant.COMPILE: compiled})
    gain = found.gain(Variant.COMPILE)
    assert gain.mean == pytest.approx(1.5, rel=0.02)
    assert gain.high / gain.low < 1.02
    assert found.best is Variant.COMPILE


def test_the_fastest_is_never_one_that_loses_to_eager_in_the_same_spans() -> None:
    """A machine that is busy half of the time may give the slower one the lesser median."""
    eager = Timing(samples_ms=(1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0), timer="host", cache="cold")
    compiled = Timing(samples_ms=(4.0, 4.0, 4.0, 4.0, 9.0, 9.0, 9.0), timer="host", cache="cold")
    found = baseline(times={Variant.EAGER: eager, Variant.COMPILE: compiled})
    assert compiled.p50_ms < eager.p50_ms and found.gain(Variant.COMPILE).mean < 1
    assert found.best is Variant.EAGER


def test_a_gain_is_computed_once(monkeypatch) -> None:
    """A run of a hundred samples a problem asks for it at each verdict."""
    asked = []
    monkeypatch.setattr(module, "paired_ratio", lambda *pair: asked.append(pair) or paired_ratio(*pair))
    found = baseline()
    assert {found.best for _ in range(9)} == {Variant.COMPILE}
    assert len({found.gain(Variant.COMPILE).mean for _ in range(9)}) == 1
    assert len(asked) == len(found.times)


@pytest.mark.parametrize("mean", ["null", "0", "-1", "NaN", '"x"'])
def test_a_mean_that_is_no_time_is_one_line(tmp_path, mean) -> None:
    path = tmp_path / "baseline_time_torch.json"
    path.write_text(f'{{"level1": {{"1_x.py": {{"mean": {mean}}}}}}}')
    with pytest.raises(UsageError, match="no baseline file of KernelBench's"):
        read_kernelbench(path)


@pytest.mark.slow
def test_a_crash_and_a_hang_cost_one_problem_each() -> None:
    entries = [
        entry(1, "pass"),
        entry(2, "os.abort()"),
        entry(3, "import time; time.sleep(60)"),
        entry(4, "raise ValueError('no such thing')"),
    ]
    request = Request(torch.device("cpu"), "float32", False, (Variant.CUDAGRAPHS,))
    found = {each.number: result for each, result in measure_all(entries, request, 15)}
    first = found[1]
    assert isinstance(first, Baseline)
    assert first.times[Variant.EAGER].timer == "host"
    assert first.times[Variant.EAGER].cache == "cold"
    assert first.failures == {Variant.CUDAGRAPHS: "needs a GPU"}
    assert first.problem_sha256 == entries[0].source.sha256
    assert found[2] == "its process ended by itself, exit code -6"
    assert found[3] == "no end after 15 s"
    assert found[4] == "the reference fails: ValueError: no such thing"
