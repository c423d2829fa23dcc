"""How the Triton kernels are launched, with the measured reason for every threshold."""

from dataclasses import dataclass

from kernelyard.kernels.powers import power_above


@dataclass(frozen=True)
class Settings:
    """Percentages are of the copy bandwidth over the least bytes."""

    programs: int = 1024
    """Programs that share out a matrix whose rows are added up."""
    columns: int = 512
    rows: int = 8
    """The block of a matrix that a program has on its way at once, its lines long enough to be read whole."""
    dot_columns: int = 1024
    dot_rows: int = 4
    """The block of x whose rows are multiplied with the sums."""
    warps: int = 4


SETTINGS = Settings()


def shares(rows: int, width: int) -> tuple[int, int, int]:
    """Columns of a program, programs to a column, and blocks of rows that each takes, a power of two."""
    columns = min(SETTINGS.columns, power_above(width))
    blocks = max(1, -(-rows // SETTINGS.rows))
    wanted = max(1, SETTINGS.programs // max(1, -(-width // columns)))
    tiles = power_above(-(-blocks // wanted))
    return columns, -(-blocks // tiles), tiles
