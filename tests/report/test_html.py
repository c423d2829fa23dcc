"""The HTML page: complete, self-contained, and deaf to what a solution writes into it."""

import re

import pytest
from html_page import Page
from pydantic import ValidationError

from kernelyard.core.verdict import REQUEST, Flag, SandboxRecord, Status, Timing, WholeRequests
from kernelyard.report.bars import bars
from kernelyard.report.html import render

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)> & \"quoted\" 'too'"


def test_every_text_of_a_stranger_is_escaped(make_ladder, make_verdict) -> None:
    verdict = make_verdict(
        Status.REJECTED,
        message=HOSTILE,
        solution=HOSTILE,
        problem=HOSTILE,
        flags=(Flag(name=HOSTILE, evidence=HOSTILE),),
        sandbox=SandboxRecord(kind=HOSTILE, missing={HOSTILE: HOSTILE}),
    )
    ladder = make_ladder(eager=0.8)
    strange = ladder.rows[0].model_copy(update={"backend": HOSTILE, "message": HOSTILE})
    ladder = ladder.model_copy(update={"rows": (strange,), "operator": HOSTILE, "workload": HOSTILE})
    page = Page(render([ladder], [verdict], HOSTILE))
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    # Twice the title, operator, workload, backend (bar and table), its message, and the verdict's eight.
    assert page.text.count("alert(1)") == 15


def test_hidden_and_reordering_characters_are_spelled_out(make_verdict) -> None:
    text = render([], [make_verdict(Status.CRASHED, message="a\x00b\u202ec\x1b[31md\nsecond line")], "t")
    assert "a\\u0000b\\u202ec\\u001b[31md\nsecond line" in text


def test_a_flood_is_cut(make_verdict) -> None:
    assert len(render([], [make_verdict(Status.CRASHED, message="x" * 10**6)], "t")) < 50_000


def test_the_page_asks_for_nothing_outside_itself(make_ladder, make_verdict) -> None:
    text = render([make_ladder(eager=0.8, triton=0.41)], [make_verdict()], "Report")
    page = Page(text)
    assert not {name for name, _ in page.attributes} & {"src", "href", "srcset", "action"}
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_a_pass_shows_all_its_numbers(make_verdict) -> None:
    text = Page(render([], [make_verdict(), make_verdict(Status.TIMEOUT, phase="time")], "Report")).text
    assert "2 solutions judged, 1 passed." in text
    for shown in (
        "solution.py passed 1.5e-03 1.20x (8.00x)",
        "800 us (776-824)",
        "500 us (485-515)",
        "1.60x (1.55-1.65)",
        "80.0 %",
        "slow_start : first call took 3 s",
        "bubblewrap not in force cgroup: no delegation",
        "11 calls a side by cuda_event, cache cold; 8 paired rounds, noise floor 0.4 %; 3 outputs of timed calls "
        "checked; weights by state_dict",
        "NVIDIA H100 80GB HBM3 · torch 2.11.0+cu130",
        "timeout",
        "ended in phase time",
    ):
        assert shown in text


def test_a_gain_that_is_shown_in_part_has_both_numbers(make_verdict) -> None:
    time = Timing(samples_ms=(0.5,) * 11, timer=REQUEST, cache="cold")
    requested = WholeRequests(baseline_ms=(3.2, 3.2), own_ms=(2.0, 2.0), alone_ms=(3.3,))
    text = Page(render([], [make_verdict(told=2.4, time=time, requested=requested)], "Report")).text
    assert "1.60x (1.55-1.65) faster 1.60x credited of 2.40x told" in text
    assert (
        "11 calls of the baseline by cuda_event, over what 2 whole requests of one call each show, cache cold" in text
    )
    with pytest.raises(ValidationError, match="no time by requests on a GPU without what they took"):
        make_verdict(told=2.4, time=time)


def test_a_refused_verdict_shows_no_number_that_was_not_measured(make_verdict) -> None:
    text = Page(render([], [make_verdict(Status.CRASHED, errors=(), trials=0)], "Report")).text
    assert "solution.py crashed - - - - - -" in text
    assert "measured - sandbox" in text


def test_a_ladder_shows_every_column(make_ladder) -> None:
    text = Page(render([make_ladder(eager=0.8, cuda=None)], [], "Report")).text
    row = "eager 800 us (776-824) 1250 GB/s 50.0 % 1 537 MB 1.5e-03 1.20x 1.84 s 42 passed"
    assert row in text
    assert "cuda - - - - - - - - 42 refused needs a GPU" in text
    assert "1.00 GB to move and 500 M operations at least; bound by memory; floor 400 us" in text
    assert "Verdicts" not in text


@pytest.mark.parametrize(("slowest", "logarithmic"), [(0.8, False), (80.0, True)])
def test_bars_and_the_floor_share_one_axis(make_ladder, slowest: float, logarithmic: bool) -> None:
    drawing = bars(make_ladder(eager=slowest, triton=0.4, cuda=None))
    eager, triton, cuda = drawing.bars
    assert drawing.logarithmic is logarithmic
    assert triton.end == drawing.floor.x, "a bar of the floor's time ends at the floor's line"
    assert drawing.axis < triton.end < eager.low < eager.end < eager.high <= drawing.right
    assert len(drawing.ticks) >= 3
    assert all(drawing.axis <= tick.x <= drawing.right for tick in drawing.ticks)
    assert cuda.end is None
    assert cuda.text == "refused"


def test_a_linear_bar_is_as_long_as_its_time(make_ladder) -> None:
    drawing = bars(make_ladder(eager=0.8, triton=0.4))
    eager, triton = (bar.end - drawing.axis for bar in drawing.bars)
    assert eager == pytest.approx(2 * triton, rel=1e-3)


def test_a_ladder_without_any_time_still_has_its_floor(make_ladder) -> None:
    text = render([make_ladder(triton=None, cuda=None)], [], "Report")
    assert re.search(r'class="floor"', text)
    assert "floor 400 us" in text
