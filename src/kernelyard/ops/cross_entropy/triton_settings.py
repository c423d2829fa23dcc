"""How the Triton kernels are launched, with the reason for every threshold."""

from dataclasses import dataclass

from kernelyard.kernels.powers import power_above


@dataclass(frozen=True)
class Settings:
    """Sizes in elements. Percentages are of the copy bandwidth on an H100 (2026-11), at 512 MiB."""

    row_elements: int = 32768
    """Longest row held in one program's registers: with a gradient 64 % at 65536, where the loop reaches 74."""
    read_elements: int = 65536
    """Longest row of 16-bit elements that is held for its loss alone: 83 % at 65536, where the loop reaches 74."""
    loop_block: int = 16384
    """What is on its way at once in a longer row: 74 % at 65536 with a gradient, blocks of 4096 72, of 32768 45."""
    loop_warps: int = 32
    read_warps: int = 16
    """Of a loop over 16-bit elements for the loss alone: 78 % at 262144, with 32 warps 71."""
    gradient_block: int = 4096
    """Elements of a program that computes the gradient anew."""
    looks: int = 1024
    """Programs that look whether a gradient is right already: enough to fill a chip where it is not, few to start."""
    total_block: int = 1024
    """Rows that a program of a total takes at a time."""
    column_elements: int = 4096
    """Of a tile of classes that lie apart."""
    columns: int = 128
    """Pixels side by side in it: two lines or more of 128 bytes for each class."""
    column_warps: int = 4
    totals: int = 256
    """Programs of a total, and so the numbers that the last one adds up."""


SETTINGS = Settings()


def row_blocks(n: int, size: int, gradient: bool) -> tuple[dict[str, int], int] | None:
    """Block sizes and warps for rows of `n` elements of `size` bytes, or None for rows that are read in a loop.

    The loss alone wants fewer warps: of 16 bits at 4096 95 % with 2 and 93 with 4, at 16384 94 with 8 and 80 with 16.
    """
    alone = size == 2 and not gradient
    if n > (SETTINGS.read_elements if alone else SETTINGS.row_elements):
        return None
    block = power_above(n)
    warps = 1 if block <= 1024 else 4 if block <= 4096 else 8 if block <= 8192 else 16
    if alone and 1024 < block <= 16384:
        warps = 2 if block <= 4096 else 8
    return {"ROWS": max(1, min(1024 // block, 64)), "BLOCK": block}, warps


def loop_blocks(n: int, size: int, gradient: bool) -> tuple[dict[str, int], int]:
    """Block sizes and warps for longer rows."""
    warps = SETTINGS.read_warps if size == 2 and not gradient else SETTINGS.loop_warps
    return {"BLOCKS": -(-n // SETTINGS.loop_block), "BLOCK": SETTINGS.loop_block}, warps


def gradient_blocks(n: int) -> tuple[dict[str, int], int]:
    """Block sizes and warps for the gradient of rows of `n` elements, computed anew."""
    block = min(power_above(n), SETTINGS.gradient_block)
    return {"ROWS": max(1, min(1024 // block, 64)), "BLOCK": block}, 1 if block <= 1024 else 4


def total_blocks(m: int) -> tuple[int, int]:
    """Programs and steps of a total over `m` rows; the steps are a power of two, so that few kernels serve all."""
    blocks = -(-m // SETTINGS.total_block)
    steps = power_above(-(-blocks // SETTINGS.totals))
    return -(-blocks // steps), steps


def column_blocks(n: int) -> dict[str, int]:
    """Block sizes for `n` classes that lie apart."""
    block = min(power_above(n), SETTINGS.column_elements // SETTINGS.columns)
    return {"BLOCK": block, "COLS": SETTINGS.columns}
