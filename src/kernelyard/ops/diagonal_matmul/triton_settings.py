"""How the Triton kernels are launched, with the measured reason for every threshold."""

from dataclasses import dataclass

from kernelyard.kernels.powers import power_above


@dataclass(frozen=True)
class Settings:
    """Percentages are of the copy bandwidth, at 2^28 elements of 16 bits."""

    block: int = 4096
    """Elements of a program: whole rows where one is shorter, else a piece of one."""
    warps: int = 4


SETTINGS = Settings()


def blocks(length: int) -> tuple[int, int, int]:
    """Rows of a program, elements of a row it takes, and programs of a row, for rows of `length` elements."""
    across = min(power_above(length), SETTINGS.block)
    return SETTINGS.block // across, across, -(-length // across)
