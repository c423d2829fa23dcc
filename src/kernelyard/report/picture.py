"""Pictures as PNGs."""

import io
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from kernelyard.core.whole_file import write_whole


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
