"""A run's page in Chromium: complete without a network, its table sorts and filters, and no column is out of sight."""

import base64
import io
import shutil
from pathlib import Path

import pytest
from browser import Browser
from made_up_runs import baseline, baselines, judged, run_folder
from PIL import Image

from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.runs import analyze, read_run
from kernelyard.core.verdict import Flag, Phase, Status
from kernelyard.report.campaign_html import render

CHROMIUM = shutil.which("chromium")
ROWS = "Array.from(document.querySelectorAll('tbody.verdict:not([hidden])')).map((row) => row.dataset.problem)"
CLICK = "document.querySelector('th[data-key={key}] button').click()"
TYPE = (
    "var field = document.getElementById('{field}'); field.value = '{text}'; field.dispatchEvent(new Event('{event}'))"
)
CUT = """Array.from(document.querySelectorAll('.wide')).filter((box) => box.scrollWidth > box.clientWidth)
  .map((box) => `${box.firstElementChild.className}: ${box.scrollWidth} of ${box.clientWidth}`)"""
SUMMARY = "document.querySelector('table.summary').parentElement"
LONG = "75_conv_transposed_2D_asymmetric_input_asymmetric_kernel_strided__grouped____padded____dilated__.py"


class Window(Browser):
    """A browser whose window has a size and is looked at."""

    def resize(self, width: int) -> None:
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def edges(self, element: str) -> list[str]:
        """The colors within the left and the right edge of an element, near its upper one, as `ffffff`."""
        box = self.do(f"{element}.getBoundingClientRect().toJSON()")
        picture = Image.open(io.BytesIO(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))).convert("RGB")
        places = [(round(across), round(box["top"]) + 4) for across in (box["left"] + 1, box["right"] - 2)]
        return [bytes(picture.getpixel(place)).hex() for place in places]


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_the_page_needs_nothing_and_its_table_sorts_and_filters(tmp_path: Path) -> None:
    flag = Flag(name="side_stream", evidence="line 7 makes a stream of its own")
    broken = judged(4, status=Status.COMPILE_ERROR, message="SyntaxError: invalid syntax\nof a long story")
    run = read_run(
        run_folder(tmp_path / "run", [judged(1, 3.0), judged(2, 0.5), judged(3, 20.0, flags=(flag,)), broken])
    )
    analysis, answers, _ = analyze(run, Opponents(), None, {})
    page = tmp_path / "page.html"
    page.write_text(render(analysis, answers, run.judged, {}, {}))
    with Browser(str(CHROMIUM), tmp_path / "profile") as browser:
        browser.open(page)

        def shown() -> str:
            return "".join(str(int(place) + 1) for place in browser.do(ROWS))

        assert [asked["request"]["url"] for asked in browser.told("Network.requestWillBeSent")] == [page.as_uri()]
        assert not browser.told("Log.entryAdded") + browser.told("Runtime.exceptionThrown")
        assert shown() == "1234"
        browser.do(CLICK.format(key="eager"))
        assert shown() == "2134", "by number, and what has none comes last"
        browser.do(CLICK.format(key="eager"))
        assert shown() == "3124"
        browser.do(CLICK.format(key="status"))
        assert shown() == "4312"
        browser.do(TYPE.format(field="words", text="SYNTAXERROR", event="input"))
        assert shown() == "4", "by why it failed, which a closed row shows"
        for word, found in (("side_stream", "3"), ("own stream 7", "3"), ("bubblewrap", "")):
            browser.do(TYPE.format(field="words", text=word, event="input"))
            assert shown() == found, "by a flag and its evidence, and by no line that every verdict has"
        browser.do(TYPE.format(field="words", text="passed faster", event="input"))
        assert shown() == "31"
        assert browser.do("document.getElementById('shown').textContent") == "2 of 4 samples"
        browser.do(TYPE.format(field="status", text="compile_error", event="change"))
        assert shown() == ""
        assert browser.do("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_no_table_is_cut_at_the_usual_widths_and_one_that_is_shows_it(tmp_path: Path) -> None:
    """Of 1280 pixels, and of 1920, a page had 1208: the last columns were beyond an edge that nothing marked."""
    verdicts = [
        judged(1, 3.0),
        judged(2, 0.9512, half=0.2, sample=3),
        judged(3, 12.0, told=14.0),
        judged(4, 1.54, half=0.1, confirmed=False, decision="inconclusive"),
        judged(5, status=Status.NONDETERMINISTIC, message="two calls on the same inputs differ"),
        judged(6, status=Status.OUT_OF_MEMORY, phase=Phase.TIME),
    ]
    verdicts = [each.model_copy(update={"problem_name": LONG}) for each in verdicts]
    run = read_run(run_folder(tmp_path / "run", verdicts))
    stored = [baseline(number, 0.5).model_copy(update={"problem_name": LONG}) for number in range(1, 7)]
    opponents, degenerate = Opponents.read([baselines(tmp_path / "timing", stored)]), {(1, 3): "zeros pass"}
    analysis, answers, _ = analyze(run, opponents, None, degenerate, p_values=(0.0, 1.0, 1.5, 2.0))
    assert analysis.claims and len(analysis.groups) == 2 and len(analysis.groups[0].against) == 2
    page = tmp_path / "page.html"
    page.write_text(render(analysis, answers, run.judged, {}, degenerate))
    with Window(str(CHROMIUM), tmp_path / "profile") as browser:
        browser.open(page)
        for width in (1280, 1920):
            browser.resize(width)
            assert browser.do(CUT) == []
            assert browser.do("document.querySelector('table.samples').offsetWidth") > width - 60
            assert browser.edges(SUMMARY) == ["ffffff", "ffffff"]
        browser.resize(800)
        assert [cut.partition(":")[0] for cut in browser.do(CUT)] == ["summary", "samples"]
        left, right = browser.edges(SUMMARY)
        assert left == "ffffff" and int(right[:2], 16) < 0xE0, "a shade where it goes on"
        browser.do(f"{SUMMARY}.scrollLeft = {SUMMARY}.scrollWidth")
        left, right = browser.edges(SUMMARY)
        assert right == "ffffff" and int(left[:2], 16) < 0xE0
        assert browser.do("document.documentElement.scrollWidth <= innerWidth")
