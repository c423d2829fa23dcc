"""A run's page in Chromium: complete without a network, and its table sorts and filters."""

import shutil
from pathlib import Path

import pytest
from browser import Browser
from made_up_runs import judged, run_folder

from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.runs import analyze, read_run
from kernelyard.core.verdict import Flag, Status
from kernelyard.report.campaign_html import render

CHROMIUM = shutil.which("chromium")
ROWS = "Array.from(document.querySelectorAll('tbody.verdict:not([hidden])')).map((row) => row.dataset.problem)"
CLICK = "document.querySelector('th[data-key={key}] button').click()"
TYPE = (
    "var field = document.getElementById('{field}'); field.value = '{text}'; field.dispatchEvent(new Event('{event}'))"
)


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
