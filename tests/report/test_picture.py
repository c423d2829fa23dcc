"""The line at the foot of a picture."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kernelyard.report.picture import MOST_LINES, wrapped


@pytest.mark.parametrize(
    "word",
    ["NVIDIA H100 80GB HBM3,", "i, l; t and a j or more than that,", "MMMMMMMMMMMM", "costs $1 or $2 and no more"],
)
@pytest.mark.parametrize(("inches", "size"), [(6.4, 5.5), (11.0, 7.5)])
def test_no_line_is_wider_than_the_picture_and_none_is_lost(word: str, inches: float, size: float) -> None:
    """Lines of 165 letters ran out of it at the right where there were many capitals, and a fourth was left out."""
    line = " ".join([word] * 20)
    lines = wrapped(line, inches, size)
    assert lines.split() == line.split() and len(lines.splitlines()) > 1
    figure = Figure(figsize=(inches, 4), dpi=150)
    canvas = FigureCanvasAgg(figure)
    text = figure.text(0, 0, lines, fontsize=size, parse_math=False)
    drawn = text.get_window_extent(canvas.get_renderer()).width / figure.dpi
    assert 0.8 * inches < drawn <= inches


def test_what_has_no_end_is_cut_and_a_word_wider_than_the_picture_is_broken() -> None:
    lines = wrapped("W" * 5000, 6.4, 5.5).splitlines()
    assert len(lines) == MOST_LINES and lines[-1] == "…" and set("".join(lines[:-1])) == {"W"}
    assert wrapped("W" * 300, 6.4, 5.5).replace("\n", "") == "W" * 300
