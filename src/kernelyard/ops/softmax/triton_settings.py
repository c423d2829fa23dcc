"""How the Triton kernels are launched, with the measured reason for every threshold."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    row_elements: int = 32768
    """Longest row held in one program's registers."""
    loop_block: int = 8192
    loop_warps: int = 16
    loop_bytes: int = 256 << 10
    """Longest row that a second sweep still finds in L2 while all programs do so."""
    few_rows: int = 132
    split_block: int = 8192
    split_warps: int = 16
    split_bytes: int = 24 << 20
    """Bytes of a batch of split rows: what the first kernel reads, the second finds in L2."""
    column_elements: int = 16384
    """Largest block of columns held in one program's registers."""


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
    return {"BLOCK_N": along, "BLOCK_K": across, "HELD": held}, warps
