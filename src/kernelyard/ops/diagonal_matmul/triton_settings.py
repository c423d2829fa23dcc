"""How the Triton kernels are launched, with the measured reason for every threshold."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Percentages are of the copy bandwidth, at 2^28 elements of 16 bits."""

    block: int = 4096
    """Elements of a program: whole rows where one is shorter, else a piece of one."""
    warps: int = 4


SETTINGS = Settings()


def blocks(length: int) -> tuple[int, int, int]:
    """Rows of a program, elements of a row it takes, and programs of a row, for rows of `length` elements."""
    above = 1 << max(0, length - 1).bit_length()
    across = min(above, SETTINGS.block)
    return SETTINGS.block // across, across, -(-length // across)
