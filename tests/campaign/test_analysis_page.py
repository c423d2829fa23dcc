"""The page and the pictures of a run: complete, self-contained, and deaf to what a solution writes into them."""

import base64
import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from command_line import Call
from html_page import Page
from made_up_runs import baseline, baselines, judged, run_folder
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console

from kernelyard.campaign import runs
from kernelyard.campaign.comparison import compare
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.outcomes import BEST, EAGER, OPPONENTS
from kernelyard.campaign.runs import analyze, answers_of, flagged, read_run, side_of
from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Flag, KernelRun, LaunchEvidence, Status, StressRecord
from kernelyard.report.campaign import analysis_text, comparison_text, format_mean, format_share
from kernelyard.report.campaign_drawings import STROKES, drawings
from kernelyard.report.campaign_html import render
from kernelyard.report.campaign_plots import draw_fast_p, save_pictures
from kernelyard.report.console import table_console
from kernelyard.report.distribution import Bin, curve, histogram
from kernelyard.report.table import format_interval
from kernelyard.report.unbroken import Unbroken
from kernelyard.report.verdict import gist

HOSTILE = "</td></script><script>alert(1)</script><img src=x onerror=alert(2)> & \"quoted\" 'too' \u202e"


def page(tmp_path: Path, verdicts, sources=None, stored=()) -> str:
    folder = run_folder(tmp_path / "run", verdicts)
    for name, text in (sources or {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode())
    run = read_run(folder)
    opponents = Opponents.read([baselines(tmp_path / "timing", stored)] if stored else [])
    analysis, answers, sources = analyze(run, opponents, None, flagged(run))
    return render(analysis, answers, run.judged, sources, flagged(run))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_every_text_of_a_stranger_is_escaped(tmp_path) -> None:
    source = f"# {HOSTILE}"
    strange = judged(
        1, 3.0, solution=HOSTILE, solution_sha256=sha256(source), flags=(Flag(name=HOSTILE, evidence=HOSTILE),),
        evidence=LaunchEvidence(kernels=(KernelRun(name=HOSTILE, count=1),), own=(HOSTILE,)),
        stresses=(StressRecord(name=HOSTILE, outcome="skipped", reason=HOSTILE),),
    )  # fmt: skip
    strange = strange.model_copy(update={"problem_name": HOSTILE})
    refused = judged(2, status=Status.REJECTED, message=HOSTILE)
    found = Page(page(tmp_path, [strange, refused], {"level_1_problem_1_sample_0_kernel.py": source}))
    assert found.tags.count("script") == 1
    assert "img" not in found.tags
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    # Problem, solution, flag and its evidence, kernel, own, stress and its reason, source; the other's message, twice.
    assert found.text.count("alert(1)") == 11
    assert "\u202e" not in found.text
    assert "\\u202e" in found.text


def test_the_page_runs_one_script_and_asks_for_nothing(tmp_path) -> None:
    text = page(tmp_path, [judged(1, 3.0)])
    found = Page(text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text
    assert not {name for name, _ in found.attributes} & {"src", "href", "srcset", "action"}
    assert "url(" not in text
    assert "@import" not in text
    assert not re.search(r"fetch|XMLHttpRequest|innerHTML|eval\(", script)


def test_a_source_is_shown_where_it_is_what_was_judged(tmp_path) -> None:
    text = "class ModelNew:\n\tpass\n"
    verdicts = [judged(number, solution_sha256=sha256(text)) for number in (1, 2, 3)]
    shown = page(
        tmp_path,
        verdicts,
        {
            "level_1_problem_1_sample_0_kernel.py": text,
            "level_1_problem_2_sample_0_kernel.py": "class Changed: pass",
            "3_Made_Up/0.py": text,
        },
    )
    assert shown.count("<pre>class ModelNew:\n    pass\n</pre>") == 2
    assert "Changed" not in shown
    assert shown.count("The source is not at hand as it was judged.") == 1


def test_a_solution_is_read_once(tmp_path, kernelyard: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the note of what has changed since its verdict, and for the page."""
    text, read = "class ModelNew: pass", []
    verdicts = [judged(number, solution_sha256=sha256(text)) for number in (1, 2)]
    folder = run_folder(tmp_path / "run", verdicts)
    for number in (1, 2):
        (folder / f"level_1_problem_{number}_sample_0_kernel.py").write_text(text)
    readable_solution = runs.readable_solution
    monkeypatch.setattr(runs, "readable_solution", lambda path: read.append(path.name) or readable_solution(path))
    done = kernelyard("analyze", folder, "--html", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").read_text().count(f"<pre>{text}</pre>") == 2
    assert read == [f"level_1_problem_{number}_sample_0_kernel.py" for number in (1, 2)]


def test_what_was_written_is_said_beside_the_numbers(tmp_path, kernelyard: Call) -> None:
    run = run_folder(tmp_path / "run", [judged(1, 3.0)])
    done = kernelyard("analyze", run, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, f"kernelyard: wrote {run}/analysis.json\n")
    assert (run / "analysis.json").is_file()


@pytest.mark.parametrize("name", ["1_Made_Up/007.py", "level_1_problem_001_sample_07_kernel.py"])
def test_a_source_is_found_by_every_name_that_was_judged(tmp_path, name: str) -> None:
    """Numbers with zeros before them are judged, and were said to be not at hand."""
    text = "class ModelNew: pass"
    shown = page(tmp_path, [judged(1, sample=7, solution_sha256=sha256(text))], {name: text})
    assert f"<pre>{text}</pre>" in shown and "not at hand" not in shown


def test_every_problem_without_a_verdict_is_named(tmp_path) -> None:
    """Of a night on a broken machine: joined, they were one long text of a stranger's, cut after 190 of 250."""
    verdicts = [judged(number, status=Status.INFRA_ERROR) for number in range(1, 251)]
    said = re.search(r"in no share: (.*?)\.</p>", page(tmp_path, verdicts))
    assert said and said[1].split(", ") == [f"level 1 problem {number}" for number in range(1, 251)]


def test_every_number_of_a_verdict_is_there(tmp_path) -> None:
    stored = [baseline(1, 0.5), baseline(2, 0.5)]
    verdicts = [judged(1, 3.0, flags=(Flag(name="degenerate_problem", evidence="zeros pass"),)), judged(2)]
    text = Page(page(tmp_path, verdicts, stored=stored)).text
    for shown in (
        "device a CPU, dtype float32, mode eval, timer cuda_event, cache cold",
        "all 2 problems eager 50.0 % (1.3-98.7) 50.0 % (1.3-98.7) 50.0 % (1.3-98.7)",
        "without degenerate 1 problem eager 0.0 %",
        "level 1 problem 1 1_Made_Up.py degenerate passed 3.00x (2.97-3.03) faster 1.50x",
        "level 1 problem 2 2_Made_Up.py incorrect_value check - - - - - -",
        "degenerate zeros pass",
        "15 calls a side by cuda_event, cache cold; 8 paired rounds",
    ):
        assert shown in text, shown


def test_a_row_shows_what_was_measured_beside_what_is_credited(tmp_path) -> None:
    verdicts = [judged(1, 1.54, half=0.1, confirmed=False, decision="inconclusive"), judged(2, 1.005, confirmed=False)]
    verdicts.append(judged(3, 2.0, told=4.0))
    text = Page(page(tmp_path, verdicts)).text
    assert "passed 1.00x credited of 1.54x (1.39-1.70) told inconclusive" in text
    assert "passed 2.00x (1.98-2.02) credited of 4.00x told faster" in text
    assert "passed 1.00x (0.995-1.02) tie" in text
    assert "1 speedup above 1 is no tie" in text


def test_of_a_compilers_words_the_error_is_shown(tmp_path) -> None:
    message = "RuntimeError: Error building extension\nc++ -c main.cpp\nmain.cpp:6: error: expected ';'\n  6 | x"
    failed = judged(1, status=Status.COMPILE_ERROR, message=message)
    assert "evidence and source: main.cpp:6: error: expected ';' said" in Page(page(tmp_path, [failed])).text
    assert gist("ValueError: no error\nmore") == "ValueError: no error"
    assert gist("") == ""


def test_a_closed_row_says_which_sample_it_is_and_why_it_did_not_pass(tmp_path) -> None:
    verdicts = [judged(1, 3.0), judged(1, sample=1, message="SyntaxError: invalid syntax\nand more"), judged(2)]
    found = Page(page(tmp_path, verdicts)).text
    assert "level 1 problem 1 sample 0 1_Made_Up.py passed" in found
    assert "level 1 problem 1 sample 1 1_Made_Up.py incorrect_value" in found
    assert "evidence and source: SyntaxError: invalid syntax said" in found
    assert found.count("evidence and source") == 3
    alone = Page(page(tmp_path / "alone", [judged(1, 3.0, unseen="no CUPTI here"), judged(2)])).text
    assert "sample 0" not in alone and "ran unknown: no CUPTI here" in alone


def test_what_a_click_sorts_by_is_a_number_or_empty(tmp_path) -> None:
    attributes = Page(page(tmp_path, [judged(1, 3.0), judged(2, sample=1)])).attributes
    assert [value for name, value in attributes if name == "data-eager"] == ["3", ""]
    assert [value for name, value in attributes if name == "data-problem"] == ["0", "1"]
    assert [value for name, value in attributes if name == "data-ending"] == ["passed", "incorrect_value"]


def test_rows_are_in_the_order_of_their_numbers_however_large(tmp_path) -> None:
    keys = [(1, 1, 2), (1, 1, 10), (1, 1, 3_500_000), (1, 1, 2**62), (1, 1, 2**62 + 1), (1, 2_000_001, 0), (2, 1, 0)]
    verdicts = [judged(problem, level=level, sample=sample) for level, problem, sample in reversed(keys)]
    found = Page(page(tmp_path, verdicts))
    assert [value for name, value in found.attributes if name == "data-problem"] == [str(n) for n in range(len(keys))]
    titles = [f"level {level} problem {problem} sample {sample} " for level, problem, sample in keys]
    places = [found.text.index(title) for title in titles]
    assert places == sorted(places)


def test_the_samples_of_a_run_of_kernelbenchs_are_in_order(tmp_path) -> None:
    entry = {"compiled": True, "correctness": True, "metadata": {}, "runtime": 1.0, "runtime_stats": {}}
    entries = [{"sample_id": sample, **entry} for sample in (10, 2, 0)]
    (tmp_path / "eval_results.json").write_text(json.dumps({"1": entries}))
    run = read_run(tmp_path, [1])
    text = Page(render(*analyze(run, Opponents(), None, {})[:2], run.judged, {}, {})).text
    assert re.findall(r"level 1 problem 1 sample (\d+)", text) == ["0", "2", "10"]


def test_the_terminal_shows_the_same_numbers(tmp_path) -> None:
    run = read_run(run_folder(tmp_path / "run", [judged(1, 3.0), judged(2)]))
    analysis, *_ = analyze(run, Opponents(), None, {})
    console = table_console()
    with console.capture() as captured:
        console.print(analysis_text(analysis))
    text = " ".join(captured.get().split())
    assert "all: 2 eager" in text
    assert "50.0 % (1.3-98.7)" in text
    assert "incorrect_value check 1 50.0 % 1" in text


@pytest.mark.parametrize("width", [45, 80, 100, 150, 250])
def test_on_a_narrow_terminal_every_interval_stands_in_one_line(tmp_path, width) -> None:
    """`(0.542-1.4` and `2)` below it were read as two numbers; what has no room goes on in a table below."""
    times = [baseline(n, 0.5) for n in (1, 2)]
    opponents = Opponents.read([baselines(tmp_path / "timing", times)])
    run = read_run(run_folder(tmp_path / "run", [judged(n, 1.0 + n / 7, sample=s) for n in (1, 2) for s in range(4)]))
    found, *_ = analyze(run, opponents, None, {}, (0.0, 0.5, 1.0, 1.5, 2.0), (1, 4))
    other = read_run(run_folder(tmp_path / "other", [judged(n, 2.0 + n / 3) for n in (1, 2)]))
    single = read_run(run_folder(tmp_path / "single", [judged(n, 1.0 + n / 7) for n in (1, 2)]))
    a, b = (side_of(one, analyze(one, opponents, None, {})[1]) for one in (other, single))
    compared = compare(a, b, (0.0, 1.0, 2.0))
    console = Console(width=width)
    with console.capture() as captured:
        console.print(analysis_text(found), comparison_text(compared))
    text = captured.get()
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    whole = found.groups[0]
    assert len(whole.against) == 2, "an opponent more, and a longer name"
    wanted = [format_share(share) for share in whole.pass_at.values()]
    for against in whole.against:
        wanted += [
            *map(format_share, against.fast.values()),
            format_share(against.faster),
            format_mean(against.speedup),
        ]
    wanted += [format_interval(each.ratio, each.low, each.high) for each in compared.summary]
    assert sum("(" in one for one in wanted) > 12
    for one in wanted:
        for part in one.replace(" (", "\n(").splitlines():
            assert any(part in line for line in text.splitlines()), f"{part} is not whole in\n{text}"


def test_where_there_is_room_an_interval_stands_beside_its_number() -> None:
    table = Unbroken(("problems",), ("fast_1", "fast_2"), [("all", "50.0 % (1.3-98.7)", "-")])
    shown = {}
    for width in (80, 35):
        console = Console(width=width)
        with console.capture() as captured:
            console.print(table)
        shown[width] = captured.get()
    assert "50.0 % (1.3-98.7)" in shown[80] and "50.0 % (1.3-98.7)" not in shown[35]
    assert "(1.3-98.7)" in shown[35] and shown[35].count("problems") == 1


def test_a_name_in_brackets_is_no_markup() -> None:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(Unbroken(("problem",), ("A",), [("[bold]1[/bold] of [x]", "1")]))
    assert "[bold]1[/bold] of [x]" in captured.get()


def test_a_histogram_and_a_curve_hold_every_sample(tmp_path) -> None:
    run = read_run(run_folder(tmp_path / "run", [judged(1, 1.0), judged(2, 100.0), judged(3, 0.001), judged(4)]))
    _, answers, _ = analyze(run, Opponents(), None, {})
    bins = histogram(answers, "eager")
    assert sum(sum(each.counts.values()) for each in bins) == 3
    assert bins[0].low == -4
    assert bins[0].counts == {"slower": 1}
    assert bins[-1].counts == {"faster": 1}
    assert next(each.counts for each in bins if each.low == 0) == {"tie": 1}
    shares = {octave: found.count for octave, found in curve(answers, "eager")}
    assert (shares[-2.0], shares[0.0], shares[6.0]) == (2, 1, 1), "strictly faster than p"


def test_a_curve_falls_where_somebody_stands_and_nowhere_between(tmp_path) -> None:
    run = read_run(run_folder(tmp_path / "run", [judged(1, 0.5), judged(2, 0.75), judged(3, 3.0), judged(4)]))
    _, answers, _ = analyze(run, Opponents(), None, {})
    corners = [(2.0**octave, found.count) for octave, found in curve(answers, "eager")]
    halves = [(0.25, 3), (0.5, 3), (0.5, 2), (0.75, 2), (0.75, 1), (3.0, 1), (3.0, 0), (3.0, 0)]
    assert corners == [(pytest.approx(p), count) for p, count in halves]


def test_an_outermost_bar_says_that_it_holds_what_lies_beyond(tmp_path) -> None:
    """A thousandth of the speed was `0.0625x to 0.0743x`."""
    run = read_run(run_folder(tmp_path / "run", [judged(n, speed) for n, speed in enumerate((0.001, 1.1, 9.9), 1)]))
    _, drawing = drawings(answers_of(run, Opponents(), None))
    spans = ["0.0743x and less", "1x to 1.19x", "9.51x to 11.3x"]
    assert [bar.text.partition(", ")[2] for bar in drawing.bars] == spans
    assert (Bin(5.75, {}).span, Bin(5.5, {}).span) == ("53.8x and more", "45.3x to 53.8x")


def test_of_curves_that_coincide_both_are_seen(tmp_path) -> None:
    """torch.compile gains on nothing, so that the faster of the two is eager: the second curve lay on the first."""
    verdicts = [judged(n, speed) for n, speed in enumerate((0.5, 1.5, 3.0), 1)]
    run = read_run(run_folder(tmp_path / "run", verdicts))
    opponents = Opponents.read([baselines(tmp_path / "timing", [baseline(n, 2.0) for n in (1, 2, 3)])])
    analysis, answers, _ = analyze(run, opponents, None, {})
    assert curve(answers, EAGER) == curve(answers, BEST)

    figure = draw_fast_p(analysis, answers, OPPONENTS)
    canvas = FigureCanvasAgg(figure)
    figure.axes[0].get_legend().remove()
    canvas.draw()
    drawn = Counter(bytes(pixel).hex() for row in np.asarray(canvas.buffer_rgba())[..., :3] for pixel in row)
    strokes = {opponent: drawn[stroke.color.removeprefix("#")] for opponent, stroke in STROKES.items()}
    assert min(strokes.values()) > 200, strokes

    lower, upper = drawings(answers)[0].lines
    assert lower.points == upper.points and lower.stroke.width > upper.stroke.width and upper.stroke.gap
    assert render(analysis, answers, run.judged, {}, {}).count('stroke-dasharray="') == 1


def test_pictures_are_drawn_and_nothing_timed_is_said(tmp_path) -> None:
    run = read_run(run_folder(tmp_path / "my run", [judged(1, 3.0), judged(2, 0.5)]))
    analysis, answers, _ = analyze(run, Opponents(), None, {})
    paths = save_pictures(analysis, answers, tmp_path / "png")
    assert [path.name for path in paths] == ["my-run_fast_p.png", "my-run_speedups.png"]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in paths)
    run = read_run(run_folder(tmp_path / "wrong", [judged(1)]))
    analysis, answers, _ = analyze(run, Opponents(), None, {})
    assert "<svg" not in render(analysis, answers, run.judged, {}, {})
    with pytest.raises(UsageError, match="no right sample with a time"):
        save_pictures(analysis, answers, tmp_path / "png")
