"""How the Triton kernels of the norms are launched, with the measured reason for every threshold."""

from dataclasses import dataclass
from functools import cache

import torch

from kernelyard.core.interpreter import interpreting
from kernelyard.kernels.layout import Rows


@dataclass(frozen=True)
class Settings:
    """Sizes are in elements of a block unless they say otherwise."""

    forward_elements: int = 32768
    """Longest row that the forward holds in one program's registers."""
    backward_elements: int = 16384
    """Longest row that the backward holds, beside the sums of its weight's gradient."""
    column_elements: int = 16384
    """Largest block of columns held."""
    loop_block: int = 16384
    loop_warps: int = 32
    few_rows: int = 64
    """Fewer long rows than this leave the chip idle with a program each: they are split over programs."""
    split_block: int = 4096
    split_warps: int = 8
    split_bytes: int = 12 << 20
    """Bytes of a batch of split rows: what the first kernel reads, the second finds in L2."""
    few_columns: int = 64
    """Fewer blocks than this, of columns too long to hold, leave the chip idle: they are turned into rows."""
    sum_block: int = 4096
    """Columns of one program of the backward of long rows."""
    sum_warps: int = 8
    stages: int = 2
    """Steps of the backward's walk that are on their way at once."""
    add_rows: int = 32
    add_block: int = 64
    add_warps: int = 4


SETTINGS = Settings()


def power_above(value: int) -> int:
    """The least power of two that is at least `value`."""
    return 1 << max(0, value - 1).bit_length()


@dataclass(frozen=True)
class Blocks:
    """A program's tile: `lines` rows or columns of `length` elements each, and its warps."""

    lines: int
    length: int
    warps: int


def forward_blocks(view: Rows) -> Blocks | None:
    """The tile that holds whole lines, or None where they are too long."""
    if view.inner > 1:
        return column_blocks(view)
    length = power_above(view.length)
    if length > SETTINGS.forward_elements:
        return None
    warps = 1 if length <= 1024 else 4 if length <= 4096 else 8 if length <= 8192 else 16
    return Blocks(max(1, min(1024 // length, 64)), length, warps)


def backward_blocks(view: Rows) -> Blocks | None:
    """The tile that holds whole lines of both inputs and the sums of dweight and dbias, or None."""
    if view.inner > 1:
        return column_blocks(view)
    length = power_above(view.length)
    if length > SETTINGS.backward_elements:
        return None
    warps = 4 if length <= 2048 else 8 if length <= 8192 else 16
    return Blocks(max(1, min(2048 // length, 64)), length, warps)


def column_blocks(view: Rows) -> Blocks | None:
    """64 columns side by side, at least 16 where there are as many, or None where so many are too long to hold."""
    length = power_above(view.length)
    across = min(power_above(view.inner), 64)
    while across > 16 and length * across > SETTINGS.column_elements:
        across //= 2
    if length * across > SETTINGS.column_elements:
        return None
    return Blocks(across, length, max(1, min(16, length * across // 1024)))


def loop_blocks(view: Rows) -> Blocks:
    """The tile of one step along lines that are too long to hold."""
    if view.inner == 1:
        return Blocks(1, SETTINGS.loop_block, SETTINGS.loop_warps)
    across = min(power_above(view.inner), 64)
    length = max(1, SETTINGS.column_elements // 4 // across)
    return Blocks(across, length, max(1, min(16, length * across // 1024)))


def split_blocks(length: int, size: int) -> tuple[int, int, int]:
    """Programs of a row, blocks of a program, and rows of a batch for split rows."""
    blocks = -(-length // SETTINGS.split_block)
    tiles = -(-blocks // 1024)
    return -(-blocks // tiles), tiles, max(1, SETTINGS.split_bytes // (length * size))


def persistent(tiles: int, blocks: Blocks, device: torch.device) -> int:
    """Programs of the backward that walk over `tiles`: as many as the chip runs at once, each with its own sums."""
    resident = max(1, 2048 // (32 * blocks.warps) // 2)
    return min(tiles, resident * processors(device))


def long_groups(blocks: int, rows: int, device: torch.device) -> int:
    """Programs side by side over the rows of one block of columns, so that all blocks' together fill the chip."""
    resident = max(1, 2048 // (32 * SETTINGS.sum_warps) // 2)
    return max(1, min(rows, resident * processors(device) // blocks))


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of the device; 2 for the interpreter, so that every program takes several steps."""
    return 2 if interpreting() else torch.cuda.get_device_properties(device).multi_processor_count
