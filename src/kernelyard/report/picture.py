"""Pictures as PNGs."""

import io
from pathlib import Path

from matplotlib.figure import Figure

from kernelyard.core.whole_file import write_whole


def write_png(path: Path, figure: Figure, dpi: int) -> None:
    """Draws over any older picture; one that is interrupted leaves that as it was."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi, format="png")
    write_whole(path, drawn.getvalue())
