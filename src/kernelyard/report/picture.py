"""Pictures as PNGs."""

import io
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from PIL import Image

from kernelyard.core.whole_file import write_whole

# Drawn, letters are fitted to pixels: 1.2 % wider in 7.5 points at 150 dots an inch.
WIDER = 0.97


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
    again, and what was cut by their number ran out of the picture."""
    font, room = FontProperties(size=size), WIDER * 72 * inches
    lines: list[str] = []
    end = space = _points(" ", font)
    for word in line.split():
        width = _points(word, font)
        if lines and end + space + width <= room:
            lines[-1] += f" {word}"
            end += space + width
        else:
            lines.append(word)
            end = width
    return "\n".join(lines)


def _points(text: str, font: FontProperties) -> float:
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return float(width)
