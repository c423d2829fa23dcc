"""Pictures as PNGs."""

import io
import math
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from PIL import Image

from kernelyard.core.whole_file import write_whole

# Drawn, letters are fitted to pixels: 1.2 % wider in 7.5 points at 150 dots an inch.
WIDER = 0.97
MOST_LINES = 8
"""Of a foot: what a run says of itself has no end where somebody else wrote it."""


def write_png(path: Path, figure: Figure, dpi: int, source: str = "") -> None:
    """Draws over any older picture; one that is interrupted leaves that as it was.

    `source`: what tells the data that it shows from others, kept in the file.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi, format="png", metadata={"Source": source} if source else None)
    write_whole(path, drawn.getvalue())


def source_of(path: Path) -> str:
    """What `write_png` kept there; empty where it is no such picture."""
    try:
        with Image.open(path) as picture:
            return str(picture.info.get("Source", ""))
    except OSError:
        return ""


def wrapped(line: str, inches: float, size: float) -> str:
    """The line in as many as it takes at that font size: by the width of its letters, for capitals are half as wide
    again, and what was cut by their number ran out of the picture. Beyond `MOST_LINES` it ends in an ellipsis."""
    font, room = FontProperties(size=size), WIDER * 72 * inches
    lines: list[str] = []
    end = space = _points(" ", font)
    for word in (piece for whole in line.split() for piece in _pieces(whole, font, room)):
        width = _points(word, font)
        if lines and end + space + width <= room:
            lines[-1] += f" {word}"
            end += space + width
        else:
            lines.append(word)
            end = width
    return "\n".join(lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], "…"])


def _pieces(word: str, font: FontProperties, room: float) -> list[str]:
    """The word, cut where it is wider than a line."""
    count = math.ceil(_points(word, font) / (0.9 * room))
    if count <= 1:
        return [word]
    length = max(1, len(word) // count)
    return [word[i : i + length] for i in range(0, len(word), length)]


def _points(text: str, font: FontProperties) -> float:
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return float(width)
