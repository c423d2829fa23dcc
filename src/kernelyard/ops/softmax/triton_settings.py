"""How the Triton kernels are launched, with the measured reason for every threshold."""

from dataclasses import dataclass

from kernelyard.kernels.powers import power_above


@dataclass(frozen=True)
class Settings:
    """Percentages are of the copy bandwidth, at 2^28 elements of 16 bits."""

    row_elements: int = 32768
    """Longest row held in one program's registers; at 65536 the backward spills: 33 %, where the loop reaches 90."""
    loop_block: int = 16384
    """What is on its way at once: 79 % at 65536, where blocks of 8192 reach 73 and of 4096 68."""
    loop_warps: int = 32
    few_rows: int = 64
    """Below as many rows of more than `row_elements`, programs of one row leave the chip idle: 16 rows of 262144 take
    42 us, split over programs 15; 64 rows 48 and 52."""
    split_block: int = 4096
    split_warps: int = 8
    split_bytes: int = 12 << 20
    """Bytes of a batch of split rows: what the first kernel reads, the second finds in L2. 44 %; 24 MiB: 23."""
    column_elements: int = 16384
    """Largest block of columns held in one program's registers."""
    few_columns: int = 64
    """Fewer programs than this, of columns too long to hold, leave the chip idle: they are turned into rows."""


SETTINGS = Settings()


def row_blocks(n: int) -> tuple[dict[str, int], int]:
    """Block sizes and warps for rows of `n` elements."""
    block = power_above(n)
    rows = max(1, min(1024 // block, 64))
    warps = 1 if block <= 1024 else 4 if block <= 4096 else 8 if block <= 8192 else 16
    return {"ROWS": rows, "BLOCK": block}, warps


def split_blocks(n: int, size: int) -> tuple[int, int, int]:
    """Programs of a row, blocks of a program, and rows of a batch for split rows of `n` elements."""
    blocks = -(-n // SETTINGS.split_block)
    tiles = -(-blocks // 1024)
    return -(-blocks // tiles), tiles, max(1, SETTINGS.split_bytes // (n * size))


def column_blocks(n: int, inner: int) -> tuple[dict[str, int | bool], int]:
    """Block sizes and warps for `inner` columns of `n` elements."""
    across = min(power_above(inner), 64)
    while across > 16 and power_above(n) * across > SETTINGS.column_elements:
        across //= 2
    held = power_above(n) * across <= SETTINGS.column_elements
    along = power_above(n) if held else max(1, SETTINGS.column_elements // 4 // across)
    warps = max(1, min(16, along * across // 1024))
    steps = -(-n // along)
    return {"STEPS": steps, "BLOCK_N": along, "BLOCK_K": across, "HELD": held}, warps
