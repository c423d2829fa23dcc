"""How the Triton kernels are launched, with the reason for every threshold."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Sizes in elements."""

    row_elements: int = 32768
    """Longest row held in one program's registers; more spill."""
    loop_block: int = 16384
    """What is on its way at once in a longer row."""
    loop_warps: int = 32
    gradient_block: int = 4096
    """Elements of a program that computes the gradient anew."""
    looks: int = 1024
    """Programs that look whether a gradient is right already: enough to fill a chip where it is not, few to start."""
    total_block: int = 1024
    """Rows that a program of a total takes at a time."""
    totals: int = 256
    """Programs of a total, and so the numbers that the last one adds up."""


SETTINGS = Settings()


def power_above(value: int) -> int:
    """The least power of two that is at least `value`."""
    return 1 << max(0, value - 1).bit_length()


def row_blocks(n: int) -> tuple[dict[str, int], int]:
    """Block sizes and warps for rows of `n` elements."""
    block = power_above(n)
    rows = max(1, min(1024 // block, 64))
    warps = 1 if block <= 1024 else 4 if block <= 4096 else 8 if block <= 8192 else 16
    return {"ROWS": rows, "BLOCK": block}, warps


def gradient_blocks(n: int) -> tuple[dict[str, int], int]:
    """Block sizes and warps for the gradient of rows of `n` elements, computed anew."""
    block = min(power_above(n), SETTINGS.gradient_block)
    return {"ROWS": max(1, min(1024 // block, 64)), "BLOCK": block}, 1 if block <= 1024 else 4


def total_blocks(m: int) -> tuple[int, int]:
    """Programs and steps of a total over `m` rows; the steps are a power of two, so that few kernels serve all."""
    blocks = -(-m // SETTINGS.total_block)
    steps = power_above(-(-blocks // SETTINGS.totals))
    return -(-blocks // steps), steps
